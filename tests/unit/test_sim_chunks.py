from __future__ import annotations

import json
from typing import Any

from pytest_sparkperf.sim.chunks import DONE, ChunkWriter, Identity, UsageStyle
from pytest_sparkperf.sim.requests import Endpoint, Limits, parse_generation

IDENTITY = Identity("ab12", 1796053283, "vllm-x-1", "tiny")
LIMITS = Limits(("tiny",), 2048)
MESSAGES = [{"role": "user", "content": "Hi"}]
USAGE = {"include_usage": True, "continuous_usage_stats": True}
ALL: dict[str, Any] = {"stream": True, "stream_options": USAGE}
IDS: dict[str, Any] = {"return_token_ids": True}
OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}
TOOL: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"city": {}}}}}],
    "tool_choice": "required",
}


def writer(endpoint: Endpoint = "chat", usage: UsageStyle | None = None, **body: Any) -> ChunkWriter:
    base: dict[str, Any] = {"messages": MESSAGES, "prompt": "Hi there", "temperature": 0}
    generation = parse_generation(base | body, endpoint, LIMITS, nonce="")
    return ChunkWriter(generation, IDENTITY, usage or UsageStyle())


def payload(event: bytes | None) -> dict[str, Any]:
    assert event is not None
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    decoded = json.loads(event[6:])
    assert isinstance(decoded, dict)
    return decoded


def test_a_chat_opens_with_the_role_chunk() -> None:
    (opening,) = writer(**ALL, **IDS).opening()

    # Keys and their order are vLLM 0.32's.
    assert opening == (
        b'data: {"id":"chatcmpl-ab12","object":"chat.completion.chunk","created":1796053283,"model":"tiny",'
        b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
        b'"finish_reason":null}],'
        b'"usage":{"prompt_tokens":12,"total_tokens":12,"completion_tokens":0,'
        b'"completion_tokens_details":{"reasoning_tokens":0}},'
        b'"prompt_token_ids":[2,6921,73859,61614,1,73859,2,116958,102408,73859,3,73859],"prompt_text":null}\n\n'
    )


def test_a_completion_has_no_opening() -> None:
    assert writer("completions").opening() == []


def test_a_chat_chunk_has_its_channel_and_its_count() -> None:
    chunk = payload(writer(**ALL, **IDS).tokens(2, 3, done=False))
    (choice,) = chunk["choices"]

    assert list(choice) == ["index", "delta", "logprobs", "finish_reason", "token_ids"]
    assert list(choice["delta"]) == ["reasoning"]
    assert len(choice["token_ids"]) == 3
    assert chunk["usage"]["completion_tokens"] == 5
    assert chunk["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


def test_the_last_chunk_says_why_it_ended() -> None:
    (choice,) = payload(writer(max_tokens=4).tokens(3, 1, done=True))["choices"]

    assert list(choice) == ["index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"]
    assert (choice["finish_reason"], choice["stop_reason"], choice["token_ids"]) == ("length", None, None)


def test_a_chunk_may_hold_the_end_of_thinking_and_the_first_content() -> None:
    one = writer()
    generation = parse_generation({"messages": MESSAGES, "temperature": 0}, "chat", LIMITS, nonce="")
    reasoning = generation.answer.reasoning_tokens
    delta = payload(one.tokens(reasoning - 1, 4, done=False))["choices"][0]["delta"]

    assert list(delta) == ["reasoning", "content"]
    assert delta["reasoning"] == "\n"
    assert delta["content"].startswith("\n\n")
    # The end-of-thinking token alone shows nothing: no chunk, unless token ids were asked for.
    assert one.tokens(reasoning, 1, done=False) is None
    assert payload(writer(**IDS).tokens(reasoning, 1, done=False))["choices"][0]["delta"] == {}


def test_a_completion_chunk_has_the_prompt_ids_at_first_only() -> None:
    one = writer("completions", **IDS)
    (first,), (second,) = (payload(one.tokens(at, 1, done=False))["choices"] for at in (0, 1))

    assert list(first) == [
        "index",
        "text",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "prompt_token_ids",
        "token_ids",
    ]
    assert len(first["prompt_token_ids"]) == 2
    assert second["prompt_token_ids"] is None


def test_usage_closes_the_stream_where_asked_for() -> None:
    usage, done = writer(max_tokens=7, **ALL).closing(cached_tokens=0)

    assert payload(usage)["choices"] == []
    assert payload(usage)["usage"]["completion_tokens"] == 7
    assert payload(usage)["system_fingerprint"] == "vllm-x-1"
    assert done == DONE
    assert writer().closing(0) == [DONE]


def test_cached_tokens_are_reported_where_the_server_is_told_to() -> None:
    usage, _ = writer(usage=UsageStyle(prompt_details=True), **ALL).closing(cached_tokens=16)

    details = payload(usage)["usage"]["prompt_tokens_details"]
    assert details == {"cached_tokens": 16, "created_cache_tokens": 0}


def test_usage_can_be_hidden_or_wrong() -> None:
    hidden = writer(usage=UsageStyle(hidden=True), max_tokens=7, **ALL)
    doubled = writer(usage=UsageStyle(factor=2), max_tokens=7, **ALL)

    assert hidden.closing(0) == [DONE]
    assert "usage" not in payload(hidden.tokens(0, 1, done=False))
    assert payload(doubled.closing(0)[0])["usage"]["completion_tokens"] == 14


def test_a_tool_call_is_streamed_name_first() -> None:
    one = writer(**TOOL, **OFF)
    chunks = [one.tokens(position, 1, done=False) for position in range(30)]
    deltas = [payload(chunk)["choices"][0]["delta"] for chunk in chunks if chunk is not None]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]

    assert calls[0] == {
        "id": "chatcmpl-tool-ab12",
        "type": "function",
        "index": 0,
        "function": {"name": "f"},
    }
    arguments = "".join(call["function"]["arguments"] for call in calls[1:])
    assert list(json.loads(arguments)) == ["city"]
    assert all(list(call) == ["index", "function"] for call in calls[1:])


def test_a_whole_chat_answer_has_vllms_keys() -> None:
    body = json.loads(writer(max_tokens=5, **OFF).whole(0))
    (choice,) = body["choices"]

    assert list(body) == [
        "id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage",
        "prompt_logprobs", "prompt_token_ids", "prompt_text",
        "kv_transfer_params", "ec_transfer_params", "metrics",
    ]  # fmt: skip
    assert body["object"] == "chat.completion"
    assert choice["message"]["reasoning"] is None
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 5


def test_a_whole_tool_call_stands_in_the_message() -> None:
    (choice,) = json.loads(writer(**TOOL).whole(0))["choices"]
    (call,) = choice["message"]["tool_calls"]

    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "f"


def test_a_whole_completion_is_text() -> None:
    body = json.loads(writer("completions", max_tokens=5).whole(0))

    assert body["object"] == "text_completion"
    assert body["id"] == "cmpl-ab12"
    assert body["choices"][0]["text"].split()
