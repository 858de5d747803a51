from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pytest_sparkperf.adapters import proctable
from pytest_sparkperf.adapters.ports import answers, held_by
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.adapters.server import Server, start_server
from pytest_sparkperf.core.errors import ConfigError, ServerError, SparkPerfError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant

FAKE = Path(__file__).parents[1] / "data" / "servers" / "fake_vllm.py"
BANNER = "  | (APIServer pid=1) INFO 05-01 18:55:00 [api_server.py:1] vLLM API server version 0.32.0"


@pytest.fixture
def executable(tmp_path: Path) -> str:
    path = tmp_path / "bin" / "vllm"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"sparkperf-{os.getuid()}"


@pytest.fixture
def variant(executable: str) -> Callable[..., Variant]:
    def make(way: str, *, k: int = 0, ready_timeout_s: float = 20, **options: object) -> Variant:
        target = Target(
            "tiny",
            "vllm",
            executable=executable,
            model="m",
            env=FrozenMap({"FAKE_WAY": way}),
            args=FrozenMap(options),
            ready_timeout_s=ready_timeout_s,
        )
        return make_variant(target, k=k)

    return make


@pytest.fixture
def start(records: Path, tmp_path: Path) -> Iterator[Callable[[Variant], Server]]:
    started: list[Server] = []

    def start_one(variant: Variant) -> Server:
        started.append(start_server(variant, log_dir=tmp_path / "logs"))
        return started[-1]

    yield start_one
    for server in started:
        server.stop()
    assert list(records.iterdir()) == []


def below_us() -> set[proctable.ProcessEntry]:
    return set(proctable.descendants(os.getpid(), proctable.read_table()))


def failure(variant: Variant, tmp_path: Path, kind: type[SparkPerfError] = ServerError) -> str:
    """Start what must not start; nothing of it may be left."""
    before = below_us()
    with pytest.raises(kind) as caught:
        start_server(variant, log_dir=tmp_path / "logs")
    assert type(caught.value) is kind
    assert below_us() <= before
    return str(caught.value)


def log_of(tmp_path: Path, k: int = 0) -> str:
    return repr(str(tmp_path / "logs" / f"tiny-k={k}.log"))


@pytest.mark.parametrize("k", [0, 3])
def test_a_started_server_is_ready_and_known(
    variant: Callable[..., Variant], start: Callable[[Variant], Server], tmp_path: Path, k: int
) -> None:
    server = start(variant("ok", k=k))
    assert (server.model, server.k, server.simulated) == ("m", k, False)
    assert server.facts == {
        "url": server.url,
        "model": "m",
        "k": k,
        "version": "0.32.0",
        "vllm_version": "0.32.0",
        "max_model_len": 2048,
        "max_num_seqs": 4,
        "prefix_caching": False,
        "simulated": False,
        **({"speculative_method": "mtp"} if k else {}),
    }
    assert server.log_path == tmp_path / "logs" / f"tiny-k={k}.log"
    assert server.log is not None
    assert server.log.startswith("(APIServer pid=1)")
    assert server.alive()
    with pytest.raises(ServerError) as caught:
        server.metrics()
    assert str(caught.value) == (
        f"{server.url}/metrics answered 404; acceptance and counters are read there, "
        "so the server must be one that shows them."
    )
    port = int(server.url.rpartition(":")[2])
    server.stop()
    assert not server.alive()
    assert not answers(port)


def test_the_simulator_is_a_launch_kind(start: Callable[[Variant], Server]) -> None:
    target = Target("quick", "sim", model="m", args=FrozenMap({"max-num-seqs": 2}))
    server = start(make_variant(target, k=2))
    assert (server.k, server.simulated, server.facts["max_num_seqs"]) == (2, True, 2)


def test_the_port_that_args_name_is_used(
    variant: Callable[..., Variant], start: Callable[[Variant], Server]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    assert start(variant("ok", port=port)).url == f"http://127.0.0.1:{port}"


def test_a_second_start_keeps_the_log_of_the_first(
    variant: Callable[..., Variant], start: Callable[[Variant], Server], tmp_path: Path
) -> None:
    paths = [start(variant("ok")).log_path for _ in range(2)]
    assert paths == [tmp_path / "logs" / "tiny-k=0.log", tmp_path / "logs" / "tiny-k=0-2.log"]


def test_the_key_of_a_started_server_is_sent(
    variant: Callable[..., Variant], start: Callable[[Variant], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "right")
    server = start(variant("needs_key"))
    assert server.api_key == "right"
    assert "right" not in repr(server)


def test_a_port_that_already_answers(variant: Callable[..., Variant], records: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        text = failure(variant("ok", port=port), tmp_path)
    assert text == (
        f"port {port} already answers, and server 'tiny k=0' would not be the one measured; stop what "
        "listens there, or remove `port` from the args of target 'tiny' (a free port is used then)."
    )


def test_a_port_where_another_model_server_answers(
    variant: Callable[..., Variant], start: Callable[[Variant], Server], tmp_path: Path
) -> None:
    port = int(start(variant("ok")).url.rpartition(":")[2])
    with pytest.raises(ServerError) as caught:
        start(variant("ok", port=port))
    assert str(caught.value) == (
        f"port {port} already answers (it serves 'm'), and server 'tiny k=0' would not be the one measured; "
        "stop what listens there, or remove `port` from the args of target 'tiny' (a free port is used then)."
    )


def test_only_the_process_that_listens_holds_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert held_by(port, [os.getpid()]) is True
        assert held_by(port, [os.getppid()]) is False
    assert held_by(port, [os.getpid()]) is None


def test_dies_while_loading(variant: Callable[..., Variant], records: Path, tmp_path: Path) -> None:
    assert failure(variant("dies"), tmp_path) == (
        "server 'tiny k=0' exited with status 1 while starting: ValueError: NvFp4 MoE backend 'MARLIN' does "
        "not support the deployment configuration since kernel does not support quantization scheme u8. "
        f"The log {log_of(tmp_path)} ends with:\n"
        f"{BANNER}\n"
        "  | (EngineCore pid=187) ERROR 05-01 18:55:06 [core.py:1512] ValueError: NvFp4 MoE backend 'MARLIN' "
        "does not support the deployment configuration since kernel does not support quantization scheme "
        "u8.\n  | (APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
        "  | ::error::a line that must not reach the runner as a command"
    )
    assert list(records.iterdir()) == []


def test_ended_by_a_signal_while_loading(
    variant: Callable[..., Variant], records: Path, tmp_path: Path
) -> None:
    assert failure(variant("killed"), tmp_path) == (
        f"server 'tiny k=0' was ended by SIGABRT while starting. The log {log_of(tmp_path)} ends "
        f"with:\n{BANNER}"
    )


@pytest.mark.parametrize(
    ("way", "seen"),
    [
        ("hangs", "nothing listened on port {port}"),
        ("health_only", "/v1/models answered 404 (/health answers 200)"),
        ("loading", "/v1/models answered 503: still loading (/health answers 200)"),
        (
            "generation_hangs",
            "a generation of 2 tokens gave no answer within {waited} s (/health answers 200)",
        ),
    ],
)
def test_never_ready(
    variant: Callable[..., Variant], records: Path, tmp_path: Path, way: str, seen: str
) -> None:
    text = failure(variant(way, ready_timeout_s=1.5), tmp_path)
    known = {"port": text.partition("on port ")[2].partition(".")[0]}
    known["waited"] = text.partition("no answer within ")[2].partition(" s ")[0]
    assert text == (
        f"server 'tiny k=0' was not ready within 1.5 s: {seen.format(**known)}. If it only needs longer, "
        f"raise `ready_timeout_s` of target 'tiny'. The log {log_of(tmp_path)} ends with:\n{BANNER}"
    )
    assert list(records.iterdir()) == []


def test_dies_at_the_first_generation(variant: Callable[..., Variant], records: Path, tmp_path: Path) -> None:
    assert failure(variant("generation_dies"), tmp_path) == (
        "server 'tiny k=0' exited with status 1 while starting: ValueError: no kernel for temperature. "
        f"The log {log_of(tmp_path)} ends with:\n{BANNER}\n"
        "  | (EngineCore pid=9) ERROR 05-01 18:55:06 [core.py:1512] EngineCore encountered a fatal error.\n"
        "  | (EngineCore pid=9) ERROR 05-01 18:55:06 [core.py:1512] ValueError: no kernel for temperature"
    )


def test_exits_right_after_its_first_token(
    variant: Callable[..., Variant], records: Path, tmp_path: Path
) -> None:
    assert failure(variant("exits_after_token"), tmp_path) == (
        "server 'tiny k=0' exited with status 3 while starting: RuntimeError: out of memory. "
        f"The log {log_of(tmp_path)} ends with:\n{BANNER}\n  | RuntimeError: out of memory"
    )


def test_stops_answering_with_its_first_token(
    variant: Callable[..., Variant], records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_sparkperf.adapters.server._EXIT_REPORT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    assert failure(variant("closes_with_token", port=port), tmp_path) == (
        f"server 'tiny k=0' generated a token and then stopped answering on port {port}; look for the reason "
        f"in its log. The log {log_of(tmp_path)} ends with:\n{BANNER}"
    )


def test_ends_without_a_word(variant: Callable[..., Variant], records: Path, tmp_path: Path) -> None:
    assert failure(variant("silent"), tmp_path) == (
        f"server 'tiny k=0' exited with status 2 while starting. The log {log_of(tmp_path)} is empty."
    )


def test_another_process_takes_the_port_while_the_server_loads(
    variant: Callable[..., Variant], records: Path, tmp_path: Path
) -> None:
    class Thief(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "m"}], "usage": {"completion_tokens": 1}}')

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    thieves: list[ThreadingHTTPServer] = []

    def steal(_: float) -> None:
        if not thieves:
            thieves.append(ThreadingHTTPServer(("127.0.0.1", port), Thief))
            threading.Thread(target=thieves[0].serve_forever, args=(0.01,)).start()

    with pytest.raises(ServerError) as caught:
        start_server(
            variant("hangs", port=port), log_dir=tmp_path / "logs", outside=Surroundings(sleep=steal)
        )
    thieves[0].shutdown()
    thieves[0].server_close()
    assert str(caught.value) == (
        f"server 'tiny k=0' runs, but port {port} is answered by a process that is not part of it; stop that "
        "process, or name another `port` in the args of target 'tiny'."
    )


def test_serves_another_model(variant: Callable[..., Variant], records: Path, tmp_path: Path) -> None:
    assert failure(variant("wrong_model"), tmp_path) == (
        "server 'tiny k=0' serves 'other', not 'm'; set `model` or the option served-model-name of target "
        "'tiny' to a name that it serves."
    )


def test_wants_a_key_that_is_not_there(
    variant: Callable[..., Variant], records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    assert failure(variant("needs_key"), tmp_path, ConfigError) == (
        "server 'tiny k=0' refuses access (/v1/models answered 401): it wants an API key; set VLLM_API_KEY "
        "in `env` of target 'tiny', so that requests can carry it."
    )


def test_runs_with_another_k_than_it_was_started_with(
    variant: Callable[..., Variant], records: Path, tmp_path: Path
) -> None:
    assert failure(variant("wrong_k", k=3), tmp_path) == (
        "server 'tiny k=3' was started with num_speculative_tokens 3, but serves k=0 (no speculative "
        "decoding); check `args` and `speculative` of target 'tiny', and whether this vLLM knows that "
        "speculator."
    )


def test_a_missing_executable_is_told_before_anything_starts(records: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "nothing" / "vllm")
    text = failure(make_variant(Target("tiny", "vllm", executable=path, model="m"), k=0), tmp_path)
    assert text == (
        f"{path!r} is no executable file; install vLLM, or set `executable:` of target 'tiny' to the vllm "
        "command of the environment that has it."
    )
    assert not (tmp_path / "logs").exists()


def test_no_vllm_on_path(records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert failure(make_variant(Target("tiny", "vllm", model="m"), k=0), tmp_path) == (
        "'vllm' is not on PATH; install vLLM, or set `executable:` of target 'tiny' to the vllm command of "
        "the environment that has it."
    )


def test_progress_is_told_every_ten_seconds_with_the_last_log_line(
    variant: Callable[..., Variant], records: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    now = 0.0

    def clock() -> float:
        return now

    def sleep(_: float) -> None:
        nonlocal now
        log = tmp_path / "logs" / "tiny-k=0.log"
        now += 2 if log.read_bytes() else 0  # time stands still until the server has written its line

    with pytest.raises(ServerError):
        start_server(
            variant("hangs", ready_timeout_s=25),
            log_dir=tmp_path / "logs",
            outside=Surroundings(told.append, clock, sleep),
        )
    port = told[0].partition("on port ")[2].partition(";")[0]
    assert told == [
        f"server 'tiny k=0', {at} s: nothing listened on port {port}; log: {BANNER.removeprefix('  | ')}"
        for at in (10, 20)
    ]


@pytest.mark.parametrize("moment", ["progress", "sleep"])
def test_an_interrupted_start_leaves_nothing(
    variant: Callable[..., Variant], records: Path, tmp_path: Path, moment: str
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    outside = Surroundings(sleep=interrupt)
    if moment == "progress":
        times = iter((0.0, 11.0))
        outside = Surroundings(progress=interrupt, clock=lambda: next(times))
    before = below_us()
    with pytest.raises(KeyboardInterrupt):
        start_server(variant("hangs"), log_dir=tmp_path / "logs", outside=outside)
    assert below_us() <= before
    assert list(records.iterdir()) == []
