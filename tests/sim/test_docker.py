"""launch: docker from start to end, with a docker whose containers are simulators."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_engine import DockerEngine

from pytest_sparkperf.adapters import container_end
from pytest_sparkperf.adapters.docker import Docker, owner_word
from pytest_sparkperf.adapters.leftovers import Ended, find_leftovers
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.adapters.server import Server, start_server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant

UID, GID = os.getuid(), os.getgid()
pytestmark = pytest.mark.slow  # each test starts processes and waits for their end

DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("CI", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    started = DockerEngine.start(folder)
    yield started
    started.stop()


def variant(image: str = "vllm:1", *, k: int = 3, **keys: Any) -> Variant:
    return make_variant(Target("box", "docker", image=image, model="acme/m", **keys), k=k)


def start(variant: Variant, tmp_path: Path, said: list[str] | None = None) -> Server:
    told = [] if said is None else said
    return start_server(variant, log_dir=tmp_path / "logs", outside=Surroundings(told.append))


def refused(variant: Variant, tmp_path: Path) -> str:
    with pytest.raises(ServerError) as caught:
        start(variant, tmp_path)
    return str(caught.value)


def test_a_server_runs_in_its_container_and_is_gone_after_the_stop(
    engine: DockerEngine, tmp_path: Path
) -> None:
    env = FrozenMap({"HF_TOKEN": "hf-secret", "PATH": "/opt/bin:/usr/bin"})
    args = FrozenMap({"max-num-seqs": 4, "api-key": "sk-secret"})
    server = start(variant(env=env, args=args, mounts=("/tmp:/templates:ro",)), tmp_path)

    assert server.alive()
    assert (server.k, server.facts["image"], server.facts["image_digest"]) == (3, "vllm:1", DIGEST)
    assert server.api_key == "sk-secret"
    assert "Application startup complete." in (server.log or "")
    ((_, *words),) = engine.calls("run")
    port = server.url.rpartition(":")[2]
    nonce = words[words.index("--label") + 1].removeprefix("sparkperf.nonce=")
    cache = tmp_path / "cache"
    own = cache / "pytest-sparkperf" / "containers"
    assert words == [
        *("--rm", "--init", "--pull", "never", "--name", f"sparkperf-{nonce[:12]}"),
        *("--label", f"sparkperf.nonce={nonce}", "--label", f"sparkperf.uid={UID}"),
        *("--label", f"sparkperf.owner={owner_word()}"),
        *("--gpus", "all", "--ipc=host", "--user", f"{UID}:{GID}"),
        *("--publish", f"127.0.0.1:{port}:{port}"),
        *("--mount", f"type=bind,source={cache / 'huggingface'},target=/sparkperf/huggingface"),
        *("--mount", f"type=bind,source={own / 'vllm'},target=/sparkperf/vllm"),
        *("--mount", f"type=bind,source={own / 'inductor'},target=/sparkperf/inductor"),
        *("--mount", f"type=bind,source={own / 'triton'},target=/sparkperf/triton"),
        *("--mount", f"type=bind,source={own / 'flashinfer'},target=/sparkperf/flashinfer"),
        *("--mount", "type=bind,source=/tmp,target=/templates,readonly"),
        *("--env", "HOME=/sparkperf", "--env", "USER=sparkperf", "--env", "LOGNAME=sparkperf"),
        *("--env", "HF_HOME=/sparkperf/huggingface", "--env", "VLLM_CACHE_ROOT=/sparkperf/vllm"),
        *("--env", "TORCHINDUCTOR_CACHE_DIR=/sparkperf/inductor"),
        *("--env", "TRITON_CACHE_DIR=/sparkperf/triton"),
        *("--env", "FLASHINFER_WORKSPACE_BASE=/sparkperf/flashinfer", "--env", "PATH=/opt/bin:/usr/bin"),
        *("--env", "VLLM_LOGGING_COLOR", "--env", "PYTHONUNBUFFERED"),
        *("--env", "VLLM_ENGINE_READY_TIMEOUT_S", "--env", "HF_TOKEN", "--env", "VLLM_API_KEY"),
        *("--entrypoint", "vllm", "vllm:1", "serve", "acme/m", "--max-num-seqs", "4"),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}'),
        *("--host", "0.0.0.0", "--port", port),
    ]
    assert (own / "triton").is_dir()

    server.stop()

    assert not server.alive()
    assert engine.running(UID) == []
    assert engine.calls("ps") == [
        ["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=sparkperf.nonce={nonce}"],
        ["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=sparkperf.uid={UID}"],
    ]


def test_the_processes_in_a_container_are_known(engine: DockerEngine, tmp_path: Path) -> None:
    server = start(variant(k=0), tmp_path)
    assert server.process is not None
    found = Docker(engine.program).pids(server.process.nonce)
    server.stop()

    assert found is not None
    assert len(found) == 1
    assert found[0] not in server.process.pids()
    assert Docker(engine.program).pids("no-such-nonce") is None


def test_two_containers_have_a_name_and_a_nonce_each(engine: DockerEngine, tmp_path: Path) -> None:
    first, second = start(variant(k=0), tmp_path), start(variant(k=1), tmp_path)
    try:
        assert len(engine.running(UID)) == 2
        assert len({call[call.index("--name") + 1] for call in engine.calls("run")}) == 2
    finally:
        first.stop()
        second.stop()
    assert engine.running(UID) == []


def test_a_server_that_dies_in_its_container_is_told_with_its_log(
    engine: DockerEngine, tmp_path: Path
) -> None:
    assert refused(variant("vllm:dies"), tmp_path) == (
        "server 'box k=3' exited with status 1 while starting: RuntimeError: no kernel image. The log "
        f"{str(tmp_path / 'logs' / 'box-k=3.log')!r} ends with:\n  | RuntimeError: no kernel image"
    )
    assert engine.running(UID) == []


def test_a_container_that_docker_cannot_start_is_told_at_once(engine: DockerEngine, tmp_path: Path) -> None:
    assert refused(variant("vllm:conflict"), tmp_path) == (
        "server 'box k=3' exited with status 125 while starting. The log "
        f"{str(tmp_path / 'logs' / 'box-k=3.log')!r} ends with:\n"
        "  | docker: Error response from daemon: driver failed programming connectivity."
    )


def test_a_container_that_does_not_heed_sigterm_is_removed_all_the_same(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_sparkperf.adapters.server.STOP_TIMEOUT_S", 0.5)
    monkeypatch.setattr("pytest_sparkperf.adapters.launch.STOP_TIMEOUT_S", 0.5)

    text = refused(variant("vllm:deaf", ready_timeout_s=1.0), tmp_path)

    assert text.startswith("server 'box k=3' was not ready within 1 s: nothing listened on port ")
    assert engine.running(UID) == []
    (stop,) = engine.calls("stop")
    (remove,) = engine.calls("rm")
    assert stop[:3] == ["stop", "--time", "1"]
    assert remove == ["rm", "--force", "--volumes", stop[3]]


def test_an_image_that_is_missing_is_pulled_and_the_pull_is_shown(
    engine: DockerEngine, tmp_path: Path
) -> None:
    said: list[str] = []

    start(variant("other:1"), tmp_path, said).stop()

    assert engine.calls("pull") == [["pull", "other:1"]]
    assert said[0] == "pulling image 'other:1': 0 of 1 layers"


def test_in_ci_nothing_is_pulled(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    assert refused(variant("other:1"), tmp_path) == (
        "image 'other:1' is not on this machine, and with CI set nothing is downloaded; run `docker pull "
        "other:1` on the runner beforehand."
    )
    assert engine.calls("pull") == []


def test_an_image_that_cannot_be_pulled_is_named_with_the_reason(
    engine: DockerEngine, tmp_path: Path
) -> None:
    assert refused(variant("nowhere:1"), tmp_path) == (
        "image 'nowhere:1' could not be pulled: Error response from daemon: manifest for nowhere:1 not "
        "found; check its name."
    )


def test_a_daemon_that_does_not_answer_is_told(engine: DockerEngine, tmp_path: Path) -> None:
    assert refused(variant("vllm:broken"), tmp_path) == (
        "docker does not answer: Cannot connect to the Docker daemon at unix:///var/run/docker.sock; check "
        "that its daemon runs and that you may use it."
    )


def test_without_docker_the_way_out_is_named() -> None:
    with pytest.raises(ServerError) as caught:
        Docker.find("box", path="/nowhere")

    assert str(caught.value) == (
        "target 'box' runs in a container, and there is no docker on PATH; install docker, or use launch: "
        "vllm with a vLLM of this machine."
    )


def test_a_container_whose_client_and_supervisor_were_killed_is_found_and_ended(
    engine: DockerEngine, tmp_path: Path
) -> None:
    server = start(variant(k=0), tmp_path)
    assert server.process is not None
    os.kill(server.process.supervisor_pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 60
    while not (found := find_leftovers()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert len(engine.running(UID)) == 1

    (leftover,) = found
    assert leftover.end(1.0) == Ended()

    assert engine.running(UID) == []
    assert find_leftovers() == []
    server.stop()


CHILD = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_docker import start, variant
start(variant(k=0), Path(sys.argv[1]))
os.kill(os.getpid(), 9)
"""


def test_kill_9_of_the_run_takes_the_container_with_it(engine: DockerEngine, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), *map(str, Path(__file__).parents[:2])],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=120,
        check=False,
    )

    assert done.returncode == -signal.SIGKILL
    deadline_s = time.monotonic() + 60
    while engine.running(UID) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert engine.running(UID) == []
    assert len(engine.calls("run")) == 1


def run_labelled(engine: DockerEngine, owner: str) -> subprocess.Popen[bytes]:
    words = ("run", "--name", "n", "--env", "A=1", "--label", "sparkperf.nonce=abc")
    labels = ("--label", f"sparkperf.uid={UID}", "--label", f"sparkperf.owner={owner}")
    return subprocess.Popen([engine.program, *words, *labels, "vllm:deaf", "serve"], stdout=subprocess.PIPE)


@pytest.mark.parametrize(("owner", "is_left"), [("1.0.{view}", True), ("{own}", False), ("7.1.other", False)])
def test_a_container_is_left_over_when_its_run_is_known_to_be_dead(
    engine: DockerEngine, owner: str, is_left: bool
) -> None:
    view = owner_word().partition(".")[2].partition(".")[2]
    client = run_labelled(engine, owner.format(view=view, own=owner_word()))
    deadline_s = time.monotonic() + 60
    while not engine.running(UID) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    docker = Docker(engine.program)

    found = docker.leftovers()

    assert [one.nonce for one in found] == (["abc"] if is_left else [])
    if is_left:
        assert docker.end(found[0], 1.0)
    assert container_end.main([engine.program, "abc", "1"]) == 0
    client.communicate(timeout=60)
    assert engine.running(UID) == []


def test_an_end_that_cannot_ask_docker_fails(capfd: pytest.CaptureFixture[str]) -> None:
    assert container_end.main(["/nowhere/docker", "abc", "1"]) == 1
    assert capfd.readouterr().err == (
        "sparkperf: containers of abc could not be ended: [Errno 2] No such file or directory: "
        "'/nowhere/docker'\n"
    )
