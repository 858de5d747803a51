from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.adapters.server import Server, attach_server
from pytest_sparkperf.core.errors import ConfigError, ServerError, SparkPerfError
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant

Answer = tuple[int, Any]
MODELS: Answer = (200, {"data": [{"id": "m", "max_model_len": 2048}, {"id": "lora"}]})
TOKEN: Answer = (200, {"choices": [{"text": "1"}], "usage": {"completion_tokens": 1}})
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@contextmanager
def serving(answers: dict[str, Answer]) -> Iterator[str]:
    """Serve fixed answers by path; a number in place of a body is a time to wait before it, in seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = answers.get(self.path, (404, {"detail": "Not Found"}))
            if isinstance(body, float):
                time.sleep(body)
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):  # the client waits no longer
                self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def variant(
    url: str, *, model: str | None = None, k: int | None = None, key_env: str | None = None
) -> Variant:
    return make_variant(
        Target("rented", "attach", model=model, urls=((None, url),), api_key_env=key_env), k=k
    )


def attach(one: Variant) -> Server:
    return attach_server(one, page_timeout_s=2.0, generation_timeout_s=0.3)


def failure(one: Variant, kind: type[SparkPerfError] = ServerError) -> str:
    with pytest.raises(kind) as caught:
        attach(one)
    assert type(caught.value) is kind
    return str(caught.value)


def metrics(*positions: int, drafts: bool = True) -> Answer:
    lines = ["vllm:generation_tokens_total 5"]
    if drafts:
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} 0' for at in positions
        ]
    return 200, "\n".join(lines)


def server_info(speculative: Any) -> Answer:
    return 200, {"vllm_config": {"speculative_config": speculative, "scheduler_config": {"max_num_seqs": 8}}}


INFO = "/server_info?config_format=json"


@pytest.mark.parametrize(
    ("pages", "k"),
    [
        ({}, None),
        ({"/metrics": (200, "process_open_fds 4")}, None),
        ({"/metrics": metrics()}, 0),
        ({"/metrics": metrics(0, 1, 2)}, 3),
        ({INFO: server_info(None), "/metrics": metrics(0)}, 0),
        ({INFO: server_info({"method": "mtp", "num_speculative_tokens": 2})}, 2),
        ({INFO: (200, {"vllm_config": "model='m', speculative_config=None"}), "/metrics": metrics(0)}, 1),
    ],
)
def test_k_is_what_server_info_says_else_metrics_else_unknown(
    pages: dict[str, Answer], k: int | None
) -> None:
    with serving({"/v1/models": MODELS, CHAT: TOKEN, **pages}) as url:
        server = attach(variant(url))
    assert (server.k, server.facts["k"]) == (k, k)


def test_server_info_tells_the_model_and_the_machine_that_a_server_runs_on() -> None:
    told = {
        "vllm_config": {"model_config": {"revision": "925d7be", "quantization": "fp8", "model": "m"}},
        "system_env": {
            "torch_version": "2.11.0+cu130",
            "nvidia_driver_version": "580.159.04",
            "os": "Ubuntu 24.04.3 LTS (x86_64)",
            "cuda_runtime_version": "13.0.88",
        },
    }
    with serving({"/v1/models": MODELS, CHAT: TOKEN, INFO: (200, told)}) as url:
        facts = attach(variant(url)).facts

    assert {
        name: facts.get(name) for name in ("revision", "quantization", "torch", "driver", "os", "cuda")
    } == {
        "revision": "925d7be",
        "quantization": "fp8",
        "torch": "2.11.0+cu130",
        "driver": "580.159.04",
        "os": "Ubuntu 24.04.3 LTS (x86_64)",
        "cuda": None,
    }


def test_a_server_on_a_cpu_has_no_gpu_driver() -> None:
    told = {
        "vllm_config": {"device_config": {"device": "cpu"}},
        "system_env": {"nvidia_driver_version": "580.159.04", "torch_version": "2.11.0+cpu"},
    }
    with serving({"/v1/models": MODELS, CHAT: TOKEN, INFO: (200, told)}) as url:
        facts = attach(variant(url)).facts

    assert (facts["device"], facts["torch"]) == ("cpu", "2.11.0+cpu")
    assert "driver" not in facts


def test_an_attached_server_says_what_it_is_and_what_it_does_not_say_is_absent() -> None:
    pages = {
        "/v1/models": MODELS,
        CHAT: TOKEN,
        "/version": (200, {"version": "0.24.0"}),
        "/metrics": metrics(),
    }
    with serving(pages) as url:
        server = attach(variant(f"{url}/v1/", k=0))
        assert (server.url, server.model, server.log, server.log_path) == (url, "m", None, None)
        assert server.facts == {
            "url": url,
            "model": "m",
            "k": 0,
            "max_model_len": 2048,
            "version": "0.24.0",
            "simulated": False,
        }
        assert server.metrics().total("vllm:generation_tokens_total") == 5
        assert server.alive()
        server.stop()
        assert server.alive()
    assert not server.alive()


@pytest.mark.parametrize(
    "pages",
    [
        {"/version": (200, {"version": "0.1.0+sparkperf.sim"})},
        {"/v1/models": (200, {"data": [{"id": "m", "owned_by": "sparkperf-sim"}]})},
    ],
)
def test_a_simulator_is_recognised(pages: dict[str, Answer]) -> None:
    with serving({"/v1/models": MODELS, CHAT: TOKEN, **pages}) as url:
        assert attach(variant(url)).simulated


def test_a_named_model_need_not_be_the_first() -> None:
    with serving({"/v1/models": MODELS, CHAT: TOKEN}) as url:
        assert attach(variant(url, model="lora")).model == "lora"


def test_a_model_without_chat_template_is_asked_for_a_completion() -> None:
    no_template = (400, {"error": {"message": "default chat template is no longer allowed"}})
    with serving({"/v1/models": MODELS, CHAT: no_template, COMPLETIONS: TOKEN}) as url:
        assert attach(variant(url)).model == "m"


def test_runs_without_speculation_where_some_is_asked_for() -> None:
    with serving({"/v1/models": MODELS, CHAT: TOKEN, "/metrics": metrics()}) as url:
        assert failure(variant(url, k=3)) == (
            f"{url} serves k=0 (no speculative decoding), the gate asks for k=3; attach a server started "
            "with num_speculative_tokens 3, or ask for k=0."
        )


def test_runs_with_speculation_where_none_is_asked_for() -> None:
    with serving({"/v1/models": MODELS, CHAT: TOKEN, "/metrics": metrics(0, 1, 2)}) as url:
        assert failure(variant(url, k=0)) == (
            f"{url} serves k=3, the gate asks for k=0 (no speculative decoding); attach a server started "
            "with no speculative config, or ask for k=3."
        )


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    assert failure(variant(url)) == (
        f"nothing answers at {url} ([Errno 111] Connection refused); start the server, or correct the URL of "
        "target 'rented'."
    )


def test_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerError) as caught:
            attach_server(variant(url), page_timeout_s=0.2)
    assert str(caught.value) == (
        f"{url}/v1/models gave no answer within 0.2 s; the server hangs or is still starting: look at its "
        "log and restart it."
    )


def test_sends_for_ever() -> None:
    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.01)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServerError) as caught:
            attach_server(variant(url), page_timeout_s=1)
        thread.join()
    assert str(caught.value) == (
        f"{url}/v1/models did not end within 1 s; the server hangs or is still starting: look at its log "
        "and restart it."
    )


@pytest.mark.parametrize(
    ("greeting", "what"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "Server disconnected without sending a response"),
        (b"220 mail ready\r\n\r\n", "illegal status line: bytearray(b'220 mail ready')"),
    ],
)
def test_does_not_speak_http(greeting: bytes, what: str) -> None:
    def greet(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(greeting)
            connection.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=greet, args=(listening,))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        text = failure(variant(url))
        thread.join()
    assert text == (
        f"{url} does not look like an OpenAI-compatible server: /v1/models did not answer in HTTP ({what}); "
        "give the server's root as the URL of target 'rented', for example http://127.0.0.1:8000."
    )


@pytest.mark.parametrize(
    ("models", "what"),
    [
        ((404, {"detail": "Not Found"}), "answered 404"),
        ((302, ""), "answered 302"),
        ((200, "<html>"), "lists no model"),
        ((200, {"data": [{"name": "m"}, 3]}), "lists no model"),
        ((200, {"data": {"id": "m"}}), "lists no model"),
    ],
)
def test_is_something_else(models: Answer, what: str) -> None:
    with serving({"/v1/models": models, "/health": (200, {})}) as url:
        assert failure(variant(url)) == (
            f"{url} does not look like an OpenAI-compatible server: /v1/models {what}; give the server's "
            "root as the URL of target 'rented', for example http://127.0.0.1:8000."
        )


def test_is_not_ready_yet() -> None:
    with serving({"/v1/models": (503, {"error": "loading"})}) as url:
        assert failure(variant(url)) == (
            f"{url}/v1/models answered 503: loading; wait until the server is ready, or look at its log."
        )


def test_is_waited_for_where_the_target_says_how_long() -> None:
    answers = {"/v1/models": (503, {"error": "loading"}), CHAT: TOKEN}
    now: list[float] = [0.0]
    told: list[str] = []

    def sleep(seconds: float) -> None:
        now[0] += 10.0
        if now[0] >= 20.0:
            answers["/v1/models"] = MODELS

    with serving(answers) as url:
        waiting = replace(variant(url), ready_timeout_s=60.0)
        server = attach_server(waiting, outside=Surroundings(told.append, lambda: now[0], sleep))

    assert server.model == "m"
    loading = f"{url}/v1/models answered 503: loading; wait until the server is ready, or look at its log."
    assert told == [f"server 'rented', 10 s: {loading}"]


def test_is_not_ready_in_the_time_that_the_target_gives_it() -> None:
    with serving({"/v1/models": (503, {"error": "loading"})}) as url:
        text = failure(replace(variant(url), ready_timeout_s=0.01))

    assert text == (
        f"{url}/v1/models answered 503: loading; wait until the server is ready, or look at its log. "
        "(waited 0.01 s)"
    )


@pytest.mark.parametrize("status", [401, 403])
def test_wants_a_key_and_none_is_named(status: int) -> None:
    with serving({"/v1/models": (status, {"error": "Unauthorized"})}) as url:
        assert failure(variant(url), ConfigError) == (
            f"{url} answered {status}: no API key was sent; name the environment variable that holds it by "
            "`api_key_env` of target 'rented'."
        )


def test_does_not_accept_the_key_and_the_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RENTED_KEY", "hunter2")
    with serving({"/v1/models": (401, {"error": "Unauthorized: hunter2"})}) as url:
        assert failure(variant(url, key_env="RENTED_KEY"), ConfigError) == (
            f"{url} answered 401: it does not accept the API key in RENTED_KEY, which target 'rented' names; "
            "set the right key."
        )


def test_lets_the_models_be_seen_but_not_used() -> None:
    with serving({"/v1/models": MODELS, CHAT: (403, {})}) as url:
        assert failure(variant(url), ConfigError) == (
            f"{url} answered 403: no API key was sent; name the environment variable that holds it by "
            "`api_key_env` of target 'rented'."
        )


def test_the_variable_of_the_key_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RENTED_KEY", raising=False)
    assert failure(variant("http://127.0.0.1:9", key_env="RENTED_KEY"), ConfigError) == (
        "target 'rented' takes its API key from the environment variable RENTED_KEY, which is not set; set "
        "it, or remove `api_key_env`."
    )


def test_serves_other_models() -> None:
    with serving({"/v1/models": MODELS}) as url:
        assert failure(variant(url, model="qwen")) == (
            f"{url} serves 'm', 'lora', not 'qwen'; set `model` of target 'rented' to a name that it serves, "
            "or attach the right server."
        )


@pytest.mark.parametrize(
    ("generation", "what"),
    [
        ((200, 1.0), "gave no answer within 0.3 s"),
        (
            (500, {"error": {"message": "EngineCore\nencountered an issue"}}),
            "answered 500: EngineCore encountered an issue",
        ),
        ((200, {"choices": [], "usage": {"completion_tokens": 0}}), "came back without a token"),
        ((200, {"choices": [{"message": {"content": ""}}]}), "came back without a token"),
        ((200, "nonsense"), "came back without a token"),
    ],
)
def test_answers_health_and_generates_nothing(generation: Answer, what: str) -> None:
    with serving({"/v1/models": MODELS, "/health": (200, {}), CHAT: generation}) as url:
        assert failure(variant(url)) == (
            f"{url} lists its models, but a generation of 2 tokens {what} (/health answers 200); its engine "
            "hangs or is gone: look at its log and restart it."
        )


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://a b:c"])
def test_a_url_that_is_none(url: str) -> None:
    assert failure(variant(url), ConfigError) == (
        f"target 'rented': {url!r} is no URL of a server; write its root, for example http://127.0.0.1:8000."
    )
