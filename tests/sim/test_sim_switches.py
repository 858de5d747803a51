"""Faults of the simulator over HTTP: switched on and off while it runs, and what a client sees of each."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from simulator_process import SimProcess, StartSimulator
from stream_reader import CHAT, Reply, Stream, call, chat_body, metric, raw_chat, stream, stream_many
from waiting import wait_until

from pytest_sparkperf.core.logprobs import read_choices
from pytest_sparkperf.core.repetition import is_repetitive
from pytest_sparkperf.core.tool_set import WEATHER
from pytest_sparkperf.sim.tokenizer import END_OF_TURN_ID

FLAGS = ("--served-model-name", "tiny", "--unpaced", "--jit-s", "0", "--enable-auto-tool-choice")
CERTIFICATE = Path(__file__).parents[1] / "data" / "tls" / "loopback.pem"
FAULTS = "/sparkperf_sim/faults"
IDS: dict[str, Any] = {"return_token_ids": True}
TOOL: dict[str, Any] = {"tools": [WEATHER], "ignore_eos": False, "max_tokens": 200}

Switch = Callable[..., Reply]


@pytest.fixture(scope="module")
def server(simulator: StartSimulator) -> SimProcess:
    return simulator(*FLAGS)


@pytest.fixture
def switch(server: SimProcess) -> Iterator[Switch]:
    """Switch faults of the shared server; all are off again after the test."""

    def switch_one(name: str, value: object = True) -> Reply:
        return call(server.url, FAULTS, {"name": name, "value": value})

    yield switch_one
    for name in call(server.url, FAULTS).json():
        switch_one(name, None)


def ids(got: Stream) -> list[int]:
    choices = [choice for chunk in got.chunks for choice in chunk["choices"]]
    return [token for choice in choices for token in choice.get("token_ids") or []]


def weather(url: str, **fields: Any) -> Stream:
    return stream(url, chat_body("What is the weather in Paris?", **TOOL, **fields))


def arguments(got: Stream) -> str:
    deltas = [
        delta for chunk in got.chunks[:-1] for delta in chunk["choices"][0]["delta"].get("tool_calls", [])
    ]
    return "".join(delta["function"].get("arguments", "") for delta in deltas)


def pairs(url: str, switch: Switch, name: str, value: object = True, **fields: Any) -> tuple[Stream, Stream]:
    """Return the answer to one request without and with a fault."""
    body = chat_body(**IDS, **fields)
    sound = stream(url, body)
    switch(name, value)
    return sound, stream(url, body)


def test_faults_are_switched_and_shown(server: SimProcess, switch: Switch) -> None:
    assert call(server.url, FAULTS).json() == {}
    assert switch("error_after", 5).json() == {"error_after": 5}
    assert not any("usage" in chunk for chunk in stream(server.url, chat_body()).chunks[-1:])
    assert call(server.url, FAULTS).json() == {"error_after": 5}
    assert switch("error_after", None).json() == {}
    assert stream(server.url, chat_body()).usage["completion_tokens"] == 24


def test_what_cannot_be_switched_is_refused(switch: Switch) -> None:
    reply = switch("lumps", 3)

    assert reply.status == 400
    assert reply.json()["error"]["message"] == ("lumps=3: lumps takes no value. Send null to switch it off.")


def test_diverge_after_says_something_else_and_is_sure_of_it(server: SimProcess, switch: Switch) -> None:
    body = chat_body(logprobs=True, top_logprobs=5, **IDS)
    sound = stream(server.url, body)
    switch("diverge_after", 6)
    bent = stream(server.url, body)
    here, there = (
        read_choices([text.encode() for _, text in got.events if text != "[DONE]"], "chat")[6]
        for got in (sound, bent)
    )

    assert ids(bent)[:6] == ids(sound)[:6]
    assert here.token != there.token
    assert there.candidates[there.token] - there.candidates[here.token] > 1
    assert (here.top2_gap or 0) > 1


def test_a_tie_is_kept_by_one_and_flipped_by_the_other(server: SimProcess, switch: Switch) -> None:
    body = chat_body(logprobs=True, top_logprobs=5, **IDS)
    sound = stream(server.url, body)
    told = []
    for name in ("tie_at", "tie_flip_at"):
        switch(name, 6)
        got = stream(server.url, body)
        told.append((got, read_choices([text.encode() for _, text in got.events[:-1]], "chat")[6]))
        switch(name, None)
    (kept, here), (flipped, there) = told

    assert ids(kept) == ids(sound)
    assert ids(flipped)[:6] == ids(sound)[:6]
    assert here.token != there.token
    assert here.candidates.keys() >= {there.token}
    assert abs(here.candidates[here.token] - here.candidates[there.token]) < 0.01
    assert abs(there.candidates[here.token] - there.candidates[there.token]) < 0.01


def test_each_second_answer_is_unsteady(server: SimProcess, switch: Switch) -> None:
    switch("unsteady_after", 4)
    texts = [stream(server.url, chat_body("Steady?")).text for _ in range(4)]

    assert texts[0] == texts[2] != texts[1] == texts[3]


def test_text_may_hang_on_the_start_of_the_process(simulator: StartSimulator) -> None:
    flags = (*FLAGS, "--fault", "launch_after=4")
    texts = [
        [stream(each.url, chat_body()).text for _ in range(2)]
        for each in (simulator(*flags, fresh=True), simulator(*flags, fresh=True))
    ]

    assert texts[0][0] == texts[0][1]
    assert texts[1][0] == texts[1][1]
    assert texts[0][0] != texts[1][0]


def test_altered_argument_calls_with_another_value(server: SimProcess, switch: Switch) -> None:
    sound = json.loads(arguments(weather(server.url)))
    switch("altered_argument")
    bent = json.loads(arguments(weather(server.url)))

    assert bent == sound | {"city": sound["city"] + "s"}


def test_a_leak_sends_the_call_as_content(server: SimProcess, switch: Switch) -> None:
    sound = weather(server.url, **IDS)
    switch("leak")
    leaked = weather(server.url, **IDS)

    assert ids(leaked) == ids(sound)
    assert leaked.text == f"<tool_call>get_weather{arguments(sound)}</tool_call>"
    assert leaked.chunks[-2]["choices"][0]["finish_reason"] == "stop"


def test_lost_delta_misses_ids_that_usage_counts(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "lost_delta", 5)

    assert ids(bent) == ids(sound)[:5] + ids(sound)[6:]
    assert bent.usage["completion_tokens"] == 24


def test_lost_text_keeps_the_ids(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "lost_text", 5)

    assert ids(bent) == ids(sound)
    assert len(bent.text) < len(sound.text)


def test_doubled_delta_comes_twice(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "doubled_delta", 5)

    assert ids(bent) == [*ids(sound)[:6], *ids(sound)[5:]]
    assert bent.usage == sound.usage


def test_doubled_text_comes_again_without_its_ids(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "doubled_text", 5)

    assert ids(bent) == ids(sound)
    assert len(bent.text) > len(sound.text)


def test_deltas_are_doubled_and_lost_inside_of_arguments_too(server: SimProcess, switch: Switch) -> None:
    sound = arguments(weather(server.url))
    switch("doubled_delta", 4)
    doubled = arguments(weather(server.url))
    switch("doubled_delta", None)
    switch("lost_delta", 4)

    assert len(doubled) > len(sound) > len(arguments(weather(server.url)))


def test_warm_breaks_where_the_prompt_hit_the_cache(server: SimProcess, switch: Switch) -> None:
    switch("warm_breaks")
    cold, warm, other = (arguments(weather(server.url, cache_salt=salt)) for salt in ("a", "a", "b"))

    assert cold == other
    assert json.loads(warm)["city"] == json.loads(cold)["city"] + "s"


def test_warm_cache_takes_no_notice_of_salts(server: SimProcess, switch: Switch) -> None:
    prompt = "warm " * 100
    switch("warm_cache")
    stream(server.url, chat_body(prompt, cache_salt="c"))
    before = metric(server.url, "vllm:prefix_cache_hits_total")
    stream(server.url, chat_body(prompt, cache_salt="d"))

    assert metric(server.url, "vllm:prefix_cache_hits_total") - before == 112


def test_repeat_after_goes_in_circles(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "repeat_after", 10, max_tokens=100)

    assert ids(bent)[:10] == ids(sound)[:10]
    assert is_repetitive(ids(bent))
    assert not is_repetitive(ids(sound))


def test_past_end_after_ends_early_where_that_is_ignored(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "past_end_after", 10, max_tokens=30)

    assert END_OF_TURN_ID not in ids(sound)
    assert ids(bent)[10] == END_OF_TURN_ID
    assert len(ids(bent)) == 30


@pytest.mark.parametrize("trigger", ["required", "schema"])
def test_an_engine_dies_at_what_it_cannot_bear(simulator: StartSimulator, trigger: str) -> None:
    server = simulator(*FLAGS, "--fault", f"engine_death_on={trigger}", fresh=True)
    killing: dict[str, Any] = {"tool_choice": "required"}
    if trigger == "schema":
        killing = {"response_format": {"type": "json_object"}}
    assert weather(server.url).complete
    got = weather(server.url, **killing)

    assert got.complete
    assert got.chunks[-1]["error"]["message"].startswith("EngineCore encountered an issue.")
    assert call(server.url, "/health").status == 503
    assert call(server.url, CHAT, chat_body()).status == 500
    assert server.wait() == 1
    assert "RuntimeError: a grammar met draft tokens (simulated by fault engine_death_on)" in server.log()


def test_a_dying_engine_takes_all_requests_along(simulator: StartSimulator) -> None:
    server = simulator(*FLAGS[:2], "--jit-s", "0", "--fault", "engine_death_on=schema", fresh=True)
    killing = chat_body(guided_regex="[a-z]{40}", ignore_eos=False)
    long = [chat_body(f"Long {number}.", max_tokens=100_000) for number in range(3)]
    ended = stream_many(server.url, [*long, killing])

    assert ["error" in got.chunks[-1] for got in ended] == [True] * 4
    assert server.wait() == 1


def test_foreign_traffic_is_counted_and_stops(server: SimProcess, switch: Switch) -> None:
    before = metric(server.url, "vllm:request_success_total")
    switch("foreign_traffic", 100)
    wait_until(lambda: metric(server.url, "vllm:request_success_total") > before + 3)
    switch("foreign_traffic", None)
    wait_until(lambda: metric(server.url, "vllm:num_requests_running") == 0)

    assert metric(server.url, "vllm:generation_tokens_total") >= 64 * 4


def test_counter_reset_counts_anew_from_the_nth_request_on(server: SimProcess, switch: Switch) -> None:
    created = metric(server.url, "vllm:generation_tokens_created")
    switch("counter_reset", 2)
    for _ in range(2):
        stream(server.url, chat_body())

    assert metric(server.url, "vllm:generation_tokens_total") == 24
    assert metric(server.url, "vllm:generation_tokens_created") > created


def test_impossible_rate_is_many_events_in_too_little_time(simulator: StartSimulator) -> None:
    quick = simulator("--jit-s", "0", "--fault", "impossible_rate")
    sound = simulator("--jit-s", "0")
    body = chat_body(max_tokens=100)
    fast, slow = (stream(each.url, body) for each in (quick, sound))

    assert fast.decode_tok_s > 4 * slow.decode_tok_s
    assert len(fast.token_times_s) == 100


def test_slow_stretches_every_step(simulator: StartSimulator) -> None:
    paced = simulator("--jit-s", "0", fresh=True)
    body = chat_body(max_tokens=40)
    sound = stream(paced.url, body)
    call(paced.url, FAULTS, {"name": "slow", "value": 2})

    assert stream(paced.url, body).decode_tok_s == pytest.approx(sound.decode_tok_s / 2, rel=0.1)


def test_stall_after_pauses_and_goes_on(simulator: StartSimulator) -> None:
    times_s = stream(simulator("--jit-s", "0", "--fault", "stall_after=5").url, chat_body()).token_times_s
    gaps_s = [late - early for early, late in pairwise(times_s)]

    assert len(times_s) == 24
    assert [gap_s > 1.9 for gap_s in gaps_s] == [False] * 4 + [True] + [False] * 18


def test_wrong_model_names_another_one(server: SimProcess, switch: Switch) -> None:
    switch("wrong_model")

    assert [one["id"] for one in call(server.url, "/v1/models").json()["data"]] == ["another-model"]
    assert stream(server.url, chat_body(model="tiny")).chunks[0]["model"] == "another-model"


def test_http_429_refuses_generations(server: SimProcess, switch: Switch) -> None:
    switch("http_429")
    reply = call(server.url, CHAT, chat_body())

    assert (reply.status, reply.json()["error"]["type"]) == (429, "RateLimitError")


def test_slow_headers_come_byte_by_byte_and_the_answer_behind_them(
    server: SimProcess, switch: Switch
) -> None:
    switch("slow_headers", 0.3)
    received: list[bytes] = []
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_chat())
        while not received or not received[-1].endswith(b"0\r\n\r\n"):
            received.append(connection.recv(65536))

    assert b"".join(received).startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"[DONE]" in b"".join(received)
    assert len(received) > 20


def test_garbage_after_sends_bytes_that_are_no_json(server: SimProcess, switch: Switch) -> None:
    switch("garbage_after", 5)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_chat())
        received = b""
        while b"[DONE]" not in received:
            received += connection.recv(65536)

    assert received.count(b"data: \xff\xfe\x00{]\n\n") == 1


def test_huge_lines_hold_the_same_answer(server: SimProcess, switch: Switch) -> None:
    sound, bent = pairs(server.url, switch, "huge_lines", 300_000)

    assert min(len(json.dumps(chunk)) for chunk in bent.chunks) < 1000
    assert ids(bent) == ids(sound)


def test_memory_is_kept_beyond_the_end_of_the_server(simulator: StartSimulator) -> None:
    server = simulator(*FLAGS, "--fault", "memory_kept=48", fresh=True)
    held = re.compile(r"48 MiB are held by process (\d+) \(fault memory_kept\)")
    wait_until(lambda: held.search(server.log()) is not None)  # said when the server is ready already
    found = held.search(server.log())
    assert found is not None
    holder = int(found[1])
    try:
        server.process.terminate()
        assert server.wait() == 0
        wait_until(lambda: resident_mib(holder) > 48)
    finally:
        os.kill(holder, signal.SIGKILL)


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def test_it_serves_https_with_a_certificate_of_its_own(simulator: StartSimulator) -> None:
    server = simulator(*FLAGS, "--ssl-certfile", str(CERTIFICATE))
    address = ("127.0.0.1", server.port)

    assert server.url.startswith("https://127.0.0.1:")
    with socket.create_connection(address) as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    with (
        socket.create_connection(address) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert connection.recv(1024).startswith(b"HTTP/1.1 200 ")
