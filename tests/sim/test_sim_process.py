"""The simulator as a process: start, refusal to start, end, and the faults it can be started with."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from simulator_process import ROOT, StartSimulator, spawn_simulator
from stream_reader import CHAT, call, chat_body, emissions, raw_chat, stream

FAST = ("--slowdown", "0.1", "--jit-s", "0")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_sparkperf.sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_it_says_where_it_listens_as_vllm_does(simulator: StartSimulator) -> None:
    log = simulator(*FAST).log()

    assert "Starting vLLM server on http://127.0.0.1:" in log
    assert log.index("GPU KV cache size: 7,121,578 tokens") < log.index("Application startup complete.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_cuts_streams(simulator: StartSimulator, number: signal.Signals) -> None:
    server = simulator(fresh=True)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_chat(max_tokens=100_000))
        assert connection.recv(1024).startswith(b"HTTP/1.1 200 ")
        server.process.send_signal(number)
        received = b"".join(iter(lambda: connection.recv(65536), b""))

    assert b"[DONE]" not in received
    assert server.wait() == 0
    assert "Traceback" not in server.log()


def test_a_port_in_use_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", str(port))

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"sparkperf sim: error: Port {port} on 127.0.0.1 is in use. Stop what listens there, or choose "
        "another --port (0 takes a free one)."
    )
    assert "Traceback" not in ended.stderr


def test_an_address_of_another_machine_is_said_in_one_sentence() -> None:
    ended = run("--host", "192.0.2.1", "--port", "0")

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "sparkperf sim: error: Cannot listen on '192.0.2.1' port 0: Cannot assign requested address. "
        "Choose an address of this machine with --host."
    )


def test_wrong_usage_is_one_sentence_and_status_2() -> None:
    ended = run("--slowdown", "no")

    assert ended.returncode == 2
    assert ended.stderr == (
        "sparkperf sim: error: Argument --slowdown: 'no' is not a factor above 0. See sparkperf sim --help.\n"
    )


def test_help_ends_with_0() -> None:
    ended = run("--help")

    assert ended.returncode == 0
    assert "--slowdown" in ended.stdout


def test_a_start_delay_can_be_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = spawn_simulator(("--start-delay-s", "600"), log)
    while b"SIMULATED" not in log.read_bytes():
        assert process.poll() is None
    process.terminate()

    assert process.wait(30) == 0
    assert "Starting vLLM server" not in log.read_text()


def test_emissions_are_appended_to_the_file_named(simulator: StartSimulator, tmp_path: Path) -> None:
    file = tmp_path / "emissions.jsonl"
    server = simulator(*FAST, "--emissions", str(file))
    stream(server.url, chat_body(max_tokens=5))
    call(server.url, CHAT, chat_body(max_tokens=3, stream=False))

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["output_tokens"] for line in lines] == [5, 3]
    assert lines == emissions(server.url)


def test_exit_at_start_prints_a_failed_start() -> None:
    ended = run("--fault", "exit_at_start")

    assert ended.returncode == 1
    assert (
        "ValueError: Free memory on device (3.21/119.68 GiB) on startup is less than desired" in ended.stderr
    )
    assert "Application startup complete." not in ended.stderr


def test_die_after_ends_the_process_in_the_nth_request(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "die_after=2", fresh=True)
    whole, cut = (stream(server.url, chat_body()) for _ in range(2))

    assert whole.complete
    assert not cut.complete
    assert cut.text != ""
    assert whole.text.startswith(cut.text)
    assert server.wait() == 1
    assert "EngineCore encountered a fatal error (simulated by --fault die_after)." in server.log()


def test_error_after_puts_an_error_object_before_done(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "error_after=5")
    got = stream(server.url, chat_body())

    assert got.events[-1][1] == "[DONE]"
    assert got.chunks[-1] == {
        "error": {
            "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
    }
    assert got.chunks[-2]["usage"]["completion_tokens"] == 5
    assert call(server.url, CHAT, chat_body(stream=False)).status == 500


def test_truncate_after_closes_without_an_end(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "truncate_after=5")
    got = stream(server.url, chat_body())

    assert not got.complete
    assert got.usage["completion_tokens"] == 5
    assert call(server.url, "/health").status == 200


def test_hang_after_sends_nothing_more(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "hang_after=5")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_chat())
        received = b""
        while received.count(b'"content":"') < 6:
            received += connection.recv(4096)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(4096)

    assert b"[DONE]" not in received


def test_hang_ready_is_healthy_and_never_generates(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "hang_ready")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_chat())
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)

    assert call(server.url, "/health").status == 200


def test_no_usage_hides_usage_even_where_asked_for(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "no_usage")
    got = stream(server.url, chat_body())

    assert got.complete
    assert all("usage" not in chunk for chunk in got.chunks)
    assert call(server.url, CHAT, chat_body(stream=False)).json()["usage"] is None


def test_wrong_usage_doubles_the_tokens(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "wrong_usage")

    assert stream(server.url, chat_body()).usage["completion_tokens"] == 48


def test_http_503_refuses_generations(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "http_503")
    reply = call(server.url, CHAT, chat_body())

    assert reply.status == 503
    assert reply.json()["error"]["message"] == "The server is temporarily unavailable."
    assert call(server.url, "/health").status == 200


def test_lumps_sends_all_chunks_together(simulator: StartSimulator) -> None:
    server = simulator("--jit-s", "0", "--fault", "lumps")
    got = stream(server.url, chat_body())
    times_s = got.token_times_s

    assert len(times_s) == 24
    assert times_s[-1] - times_s[0] < 0.2 * (times_s[0] - got.sent_s)
    (record,) = emissions(server.url)
    assert record["tokens"] == [24]


def test_ignore_sigterm_takes_sigkill(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--fault", "ignore_sigterm", fresh=True)
    server.process.terminate()

    assert stream(server.url, chat_body()).complete
    assert server.process.poll() is None
    server.process.kill()
    assert server.wait() == -signal.SIGKILL


def test_figures_are_logged_while_it_works(simulator: StartSimulator) -> None:
    drafts = '{"method":"mtp","num_speculative_tokens":2}'
    server = simulator("--stats-interval-s", "0.2", "--jit-s", "0", "--speculative-config", drafts)
    stream(server.url, chat_body(max_tokens=60))

    assert "[loggers.py:1] Engine 000: Avg prompt throughput: " in server.log()
    assert "[metrics.py:1] SpecDecoding metrics: Mean acceptance length: " in server.log()
