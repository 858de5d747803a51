"""The simulator's HTTP face: pages, answers, refusals, connections."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from simulator_process import SimProcess, StartSimulator
from stream_reader import CHAT, COMPLETIONS, call, chat_body, emissions, metric, raw_chat, stream, stream_many
from waiting import wait_until

MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')
FAST = ("--served-model-name", "tiny", "--slowdown", "0.1", "--jit-s", "0")


@pytest.fixture(scope="module")
def server(simulator: StartSimulator) -> SimProcess:
    return simulator(*FAST, "--max-model-len", "4096", "--max-num-seqs", "4")


@pytest.fixture(scope="module")
def mtp_server(simulator: StartSimulator) -> SimProcess:
    return simulator(*FAST, *MTP)


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_health_is_empty(server: SimProcess, path: str) -> None:
    reply = call(server.url, path)

    assert (reply.status, reply.body) == (200, b"")


def test_every_answer_says_that_it_is_simulated(server: SimProcess) -> None:
    assert call(server.url, "/nowhere").headers["server"] == "sparkperf-sim"
    assert call(server.url, "/version").json() == {"version": "0.32.0+sparkperf.sim"}
    (model,) = call(server.url, "/v1/models").json()["data"]
    assert (model["id"], model["owned_by"], model["max_model_len"]) == ("tiny", "sparkperf-sim", 4096)
    assert "SIMULATED as gb10-nvfp4" in server.log()


def test_server_info_tells_speculation_apart(server: SimProcess, mtp_server: SimProcess) -> None:
    off, on = (call(each.url, "/server_info?config_format=json").json() for each in (server, mtp_server))

    assert off["vllm_config"]["speculative_config"] is None
    assert on["vllm_config"]["speculative_config"]["method"] == "mtp"
    assert on["vllm_config"]["speculative_config"]["num_speculative_tokens"] == 3
    assert off["vllm_config"]["scheduler_config"]["max_num_seqs"] == 4
    assert off["vllm_config"]["cache_config"]["enable_prefix_caching"] is True


def test_tokenize_counts_what_usage_counts(server: SimProcess) -> None:
    prompt = {"prompt": "Floating point literals are described by the following."}
    counted = call(server.url, "/tokenize", prompt).json()
    used = call(server.url, COMPLETIONS, prompt | {"max_tokens": 1, "temperature": 0}).json()

    assert counted["count"] == len(counted["tokens"]) == used["usage"]["prompt_tokens"]
    assert (counted["max_model_len"], counted["token_strs"]) == (4096, None)


def test_a_stream_opens_with_its_role_and_ends_with_usage(server: SimProcess) -> None:
    got = stream(server.url, chat_body())

    assert got.complete
    assert got.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert got.chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert got.chunks[-1]["choices"] == []
    assert got.usage["completion_tokens"] == 24
    assert [chunk["usage"]["completion_tokens"] for chunk in got.chunks] == [*range(25), 24]


def test_streamed_and_whole_answers_are_the_same(server: SimProcess) -> None:
    body = chat_body("What is a list?", return_token_ids=True)
    streamed = stream(server.url, body)
    whole = call(server.url, CHAT, body | {"stream": False}).json()

    assert whole["choices"][0]["message"]["content"] == streamed.text
    ids = [token for chunk in streamed.chunks[1:-1] for token in chunk["choices"][0]["token_ids"]]
    assert whole["choices"][0]["token_ids"] == ids
    assert whole["prompt_token_ids"] == streamed.chunks[0]["prompt_token_ids"]


def test_text_is_the_same_with_drafts_and_without_alone_and_in_a_crowd(
    server: SimProcess, mtp_server: SimProcess
) -> None:
    bodies = [chat_body(f"Question {number}.", max_tokens=40) for number in range(4)]
    alone = [stream(server.url, body).text for body in bodies]

    assert [each.text for each in stream_many(server.url, bodies)] == alone
    assert [stream(mtp_server.url, body).text for body in bodies] == alone
    assert [each.text for each in stream_many(mtp_server.url, bodies)] == alone
    assert len(set(alone)) == 4


def test_thinking_is_streamed_as_reasoning_before_content(server: SimProcess) -> None:
    got = stream(server.url, chat_body(max_tokens=200, chat_template_kwargs={}))
    keys = [key for chunk in got.chunks[1:-1] for key in chunk["choices"][0]["delta"]]
    first_content = keys.index("content")

    assert set(keys[:first_content]) == {"reasoning"}
    assert set(keys[first_content:]) == {"content"}
    assert got.usage["completion_tokens_details"]["reasoning_tokens"] == first_content


def test_an_answer_ends_by_itself(server: SimProcess) -> None:
    got = stream(server.url, chat_body(max_tokens=1000, ignore_eos=False))

    assert got.chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert 60 < got.usage["completion_tokens"] < 500


def test_a_forced_tool_call_is_streamed(server: SimProcess) -> None:
    function = {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}
    tools = [{"type": "function", "function": function}]
    body = chat_body(tools=tools, tool_choice="required", ignore_eos=False, max_tokens=200)
    deltas = [chunk["choices"][0]["delta"] for chunk in stream(server.url, body).chunks[:-1]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]

    assert calls[0]["function"]["name"] == "get_weather"
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert list(json.loads(arguments)) == ["city"]


def test_a_completion_is_streamed_without_a_role(server: SimProcess) -> None:
    body = {"prompt": "Floating point", "max_tokens": 8, "stream": True, "temperature": 0}
    got = stream(server.url, body, COMPLETIONS)

    assert got.complete
    assert [chunk["object"] for chunk in got.chunks] == ["text_completion"] * 8
    assert all("usage" not in chunk for chunk in got.chunks)


def test_tokens_received_equal_the_difference_of_the_counters(mtp_server: SimProcess) -> None:
    names = (
        "generation_tokens",
        "prompt_tokens",
        "spec_decode_num_accepted_tokens",
        "spec_decode_num_drafts",
    )
    before = {name: metric(mtp_server.url, f"vllm:{name}_total") for name in names}
    got = stream_many(mtp_server.url, [chat_body(f"Count {number}.") for number in range(8)])
    grown = {name: metric(mtp_server.url, f"vllm:{name}_total") - before[name] for name in names}

    assert grown["generation_tokens"] == sum(each.usage["completion_tokens"] for each in got) == 8 * 24
    assert grown["prompt_tokens"] == sum(each.usage["prompt_tokens"] for each in got)
    # The first token of each stream is prefill's; a stream's last step may have accepted beyond its limit.
    assert grown["spec_decode_num_accepted_tokens"] + grown["spec_decode_num_drafts"] >= 8 * 23


def test_a_warm_prompt_is_a_cache_hit_and_a_salted_one_is_not(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--enable-prompt-tokens-details")
    body = chat_body("cache " * 100)
    cached = [
        stream(server.url, body | salt).usage["prompt_tokens_details"]["cached_tokens"]
        for salt in ({}, {}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "b"})
    ]

    assert cached == [0, 112, 0, 0, 112]
    assert metric(server.url, "vllm:prefix_cache_hits_total") == 224


REFUSALS = [
    (CHAT, {"model": "nope", "messages": [{"role": "user", "content": "x"}]}, 404),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "temperature": -1}, 400),
    (CHAT, {"model": "tiny"}, 400),
    (CHAT, b'{"model":"tiny",', 400),
    (COMPLETIONS, {"prompt": "word " * 5000}, 400),
]


@pytest.mark.parametrize(("path", "body", "status"), REFUSALS)
def test_a_bad_request_gets_vllms_error_body(
    server: SimProcess, path: str, body: object, status: int
) -> None:
    reply = call(server.url, path, body)

    assert reply.status == status
    assert list(reply.json()["error"]) == ["message", "type", "param", "code"]
    assert reply.json()["error"]["code"] == status


def test_unknown_paths_and_methods_are_refused(server: SimProcess) -> None:
    wrong_method = call(server.url, CHAT)

    assert (call(server.url, "/nope").status, call(server.url, "/nope").json()) == (
        404,
        {"detail": "Not Found"},
    )
    assert (wrong_method.status, wrong_method.json()) == (405, {"detail": "Method Not Allowed"})


def test_a_key_is_asked_for_where_the_server_has_one(simulator: StartSimulator) -> None:
    server = simulator(*FAST, "--api-key", "abc")
    wrong = call(server.url, "/v1/models", headers={"authorization": "Bearer x"})

    assert (wrong.status, wrong.json()) == (401, {"error": "Unauthorized"})
    assert call(server.url, "/v1/models", headers={"authorization": "Bearer abc"}).status == 200
    assert call(server.url, "/health").status == 200


def test_a_client_that_leaves_frees_its_place(simulator: StartSimulator) -> None:
    server = simulator("--max-num-seqs", "1", "--jit-s", "0", fresh=True)
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.sendall(raw_chat(max_tokens=100_000))
        assert leaving.recv(1024).startswith(b"HTTP/1.1 200 ")
        assert metric(server.url, "vllm:num_requests_running") == 1

    assert stream(server.url, chat_body(max_tokens=2)).complete
    assert metric(server.url, "vllm:num_requests_running") == 0
    aborted, finished = emissions(server.url)
    assert (aborted["outcome"], finished["outcome"]) == ("aborted", "finished")


def test_requests_beyond_the_batch_wait_in_the_queue(simulator: StartSimulator) -> None:
    server = simulator("--max-num-seqs", "2", "--jit-s", "0")
    with ThreadPoolExecutor(4) as pool:
        bodies = [chat_body(f"Queue {number}.", max_tokens=40) for number in range(4)]
        waiting = [pool.submit(stream, server.url, body) for body in bodies]
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        wait_until(lambda: [metric(server.url, name) for name in names] == [2, 2])
        assert all(each.result().complete for each in waiting)


def test_a_connection_is_kept_and_pipelined_requests_are_answered_in_order(server: SimProcess) -> None:
    asked = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /nope HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(asked + asked)
        connection.sendall(last)
        received = b"".join(iter(lambda: connection.recv(4096), b""))

    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"404"]


def test_garbage_is_refused_and_the_server_lives_on(server: SimProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(4096), b""))

    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert call(server.url, "/health").status == 200


def test_a_hundred_and_twenty_eight_streams_at_once(simulator: StartSimulator) -> None:
    server = simulator("--max-num-seqs", "128", "--slowdown", "0.2", "--jit-s", "0")
    got = stream_many(server.url, [chat_body(f"Stream {number}.", max_tokens=8) for number in range(128)])

    assert all(each.complete for each in got)
    assert sum(each.usage["completion_tokens"] for each in got) == 128 * 8
