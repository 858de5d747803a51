from __future__ import annotations

import json
from typing import Any

import pytest
from recorded_streams import STREAMS

from pytest_sparkperf.core.chunks import Chunk, Usage, body_text, error_text, parse_chunk


def chat(delta: object, **fields: object) -> Chunk:
    return parse_chunk(json.dumps({"choices": [{"index": 0, "delta": delta}], **fields}).encode(), "chat")


@pytest.mark.parametrize(
    "delta",
    [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
        {"content": None, "reasoning": None, "tool_calls": []},
        {"tool_calls": [{"index": 0, "function": {"arguments": ""}}]},
        {},
        None,
    ],
)
def test_a_role_and_empty_deltas_are_no_token_events(delta: object) -> None:
    assert not chat(delta).is_token_event


@pytest.mark.parametrize(
    "delta",
    [
        {"role": "assistant", "content": "x"},
        {"reasoning": "x"},
        {"reasoning_content": "x"},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]},
    ],
)
def test_content_reasoning_and_tool_calls_are_token_events(delta: object) -> None:
    assert chat(delta).is_token_event


def test_both_names_of_the_reasoning_channel_are_read_once() -> None:
    assert chat({"reasoning": "x", "reasoning_content": "x"}).reasoning == "x"
    assert chat({"reasoning": "", "reasoning_content": "x"}).reasoning == "x"


def test_completions_have_text_and_no_delta() -> None:
    payload = b'{"choices": [{"index": 0, "text": "x", "delta": {"content": "y"}, "token_ids": [1, 2]}]}'
    chunk = parse_chunk(payload, "completions")
    assert (chunk.content, chunk.token_ids, chunk.is_token_event) == ("x", (1, 2), True)


def test_usage_is_read_where_it_counts_tokens() -> None:
    details = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    assert chat({}, usage=details).usage == Usage(3, 7, 4)
    assert chat({}, usage={"completion_tokens": 0, "prompt_tokens_details": None}).usage == Usage(0)


@pytest.mark.parametrize("usage", [None, {}, [], {"completion_tokens": None}, {"completion_tokens": "3"}])
def test_usage_that_counts_nothing_is_none(usage: object) -> None:
    assert chat({}, usage=usage).usage is None


def test_an_event_without_choices_still_has_its_usage() -> None:
    payload = b'{"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}'
    assert parse_chunk(payload, "chat") == Chunk(usage=Usage(1, 2))


def test_fields_of_a_wrong_type_count_as_absent() -> None:
    assert chat({"content": 5, "reasoning": [], "tool_calls": {"index": 0}}) == Chunk(choice_indices=(0,))
    assert chat("text") == Chunk(choice_indices=(0,))
    assert parse_chunk(b'{"choices": "none"}', "chat") == Chunk()
    assert parse_chunk(b'{"choices": [null, 3]}', "chat") == Chunk()


@pytest.mark.parametrize("payload", [b"{", b"[1]", b"null", b"", b"\xff\xfe", b"[DONE", b"[" * 100_000])
def test_what_is_no_json_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_chunk(payload, "chat")


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"error": {"message": "boom", "type": "E", "code": 500}}, "boom (code 500)"),
        ({"error": {"message": "boom", "type": "E"}}, "boom (code E)"),
        ({"error": {"reason": 1}}, '{"reason": 1}'),
        ({"error": "boom"}, "boom"),
        ({"object": "error", "message": "boom", "code": 400}, "boom (code 400)"),
        ({"error": None, "choices": []}, None),
        ({"object": "chat.completion.chunk"}, None),
    ],
)
def test_error_objects_of_old_and_new_servers_are_understood(
    document: dict[str, Any], text: str | None
) -> None:
    assert error_text(document) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("err_404", "Not Found"),
        ("err_bad_model", "The model `nope` does not exist. Valid aliases: tiny. (code 404)"),
        (
            "err_bad_param",
            "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0) (code 400)",
        ),
    ],
)
def test_http_errors_of_a_real_server_are_told_in_its_words(name: str, text: str) -> None:
    assert body_text((STREAMS / "vllm-0.32-cpu" / f"k3.{name}.raw").read_bytes()) == text


def test_http_errors_of_a_gateway_are_told_by_their_beginning() -> None:
    assert body_text(b"  <html>502 Bad Gateway</html>\n") == "<html>502 Bad Gateway</html>"
    assert body_text(b"x" * 1000) == "x" * 300
    assert body_text(b'{"status": "down"}') == '{"status": "down"}'
    assert body_text(b"") == ""
