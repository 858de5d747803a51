from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from recorded_streams import EXPECTED, STREAMS, Case, endpoint_of, load_cases

from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.stream import StreamReader
from pytest_sparkperf.core.validity import SENTENCES, SERVER_FAULTS, Expectation, Fault

CASES = load_cases()
STEP_S = 0.001


def read_case(case: Case, expectation: Expectation = Expectation()) -> RequestResult:  # noqa: B008 - frozen
    reader = StreamReader("chat", prompt_name=case.name, expectation=expectation)
    for at_s, data in case.writes:
        reader.feed(data, at_s)
    return reader.finish(written_s=0.0, status=200)


def read_pieces(name: str, pieces: list[bytes]) -> RequestResult:
    """Read a capture cut into these pieces, one millisecond apart: captures hold no times."""
    reader = StreamReader(endpoint_of(name))
    for number, data in enumerate(pieces):
        reader.feed(data, number * STEP_S)
    return reader.finish(written_s=-STEP_S, status=200)


def events_of(data: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in data.split(b"\n\n") if event]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_streams_that_misled_other_clients_are_read_right(case: Case) -> None:
    answer = read_case(case)
    expected = case.expected
    assert {
        "ttft_s": None if answer.ttft_ms is None else round(answer.ttft_ms / 1000, 6),
        "t_last_token_s": answer.last_event_s,
        "token_events": answer.token_events,
        "completion_tokens": answer.output_tokens,
        "prompt_tokens": answer.prompt_tokens,
        "finish_reason": answer.finish_reason,
        "done_seen": answer.done_seen,
        "error": answer.reason == "error_object",
        "content": answer.text,
        "reasoning": answer.reasoning,
    } == {name: expected[name] for name in list(expected)[:10]}
    assert answer.first_event_tokens == expected.get("first_chunk_tokens")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_decode_rates_of_these_streams_follow_either_rule(case: Case) -> None:
    answer = replace(read_case(case), valid=True, reason=None)
    assert rate(answer.tpot_ms_by("n_minus_1")) == case.expected.get("decode_tps_n_minus_1")
    assert rate(answer.tpot_ms_by("minus_first_event")) == case.expected.get("decode_tps_minus_first_chunk")


def rate(tpot_ms: float | None) -> float | None:
    return None if tpot_ms is None else round(1000 / tpot_ms, 3)


VERDICTS = {
    "A07": ("buffered", "384 tokens came at 12 instants"),
    "A21": ("truncated", "the stream ended after 5 token events"),
    "A24": (
        "error_object",
        "EngineCore encountered an issue. See stack trace (above) for the root cause. (code 500)",
    ),
    "A25": ("error_object", "TimeoutError (code 504)"),
    "A33": ("buffered", "64 tokens came at 1 instants"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_the_broken_ones_of_these_streams_are_invalid(case: Case) -> None:
    answer = read_case(case)
    assert (answer.reason, answer.error) == VERDICTS.get(case.name, (None, None))
    assert answer.valid is (answer.reason is None)
    assert answer.valid or answer.decode_tok_s is None


def case_named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_events_per_token_tells_a_parser_that_holds_tokens_back() -> None:
    events_per_token = read_case(case_named("A07")).events_per_token
    assert events_per_token is not None
    assert round(events_per_token, 4) == case_named("A07").expected["events_per_token"]


def test_tool_calls_are_put_together() -> None:
    (call,) = read_case(case_named("A28")).tool_calls
    assert call["function"]["arguments"] == '{"city": "Pisa"}'


def test_a_tool_call_cut_off_by_the_limit_is_told_from_a_finished_one() -> None:
    answer = read_case(case_named("A30"), Expectation(max_tokens=64))
    assert (answer.valid, answer.finish_reason, answer.length_limited) == (True, "tool_calls", True)


def test_an_answer_that_stopped_early_is_invalid_where_its_length_was_asked_for() -> None:
    answer = read_case(case_named("A37"), Expectation(tokens=256, max_tokens=256))
    assert (answer.valid, answer.reason, answer.error) == (False, "stopped_early", "8 of 256 tokens")
    assert answer.length_limited is False


# Captures of real servers, against the independent reading in expected.json.


@pytest.mark.parametrize("name", EXPECTED)
def test_captures_read_event_by_event_agree_with_an_independent_reading(name: str) -> None:
    found = EXPECTED[name]
    answer = read_pieces(name, events_of((STREAMS / name).read_bytes()))
    assert (answer.reason, answer.valid) == (found["reason"], found["reason"] is None)
    if found["reason"] == "several_choices":
        return  # the texts of two choices are mixed, and the answer is refused
    usage: dict[str, Any] = found["usage"] or {}
    assert answer.text == found["text"]
    assert answer.reasoning == found["reasoning"]
    assert flat(answer) == found["tool_calls"]
    assert answer.token_events == found["token_events"]
    assert answer.finish_reason == found["finish_reason"]
    assert answer.done_seen is found["done"]
    assert answer.error == found["error"]
    assert answer.prompt_tokens == usage.get("prompt_tokens")
    assert answer.output_tokens == usage.get("completion_tokens")
    assert answer.cached_tokens == (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    assert answer.first_event_tokens == found["first_event_tokens"]
    assert answer.token_ids == (None if found["token_ids"] is None else tuple(found["token_ids"]))


def flat(answer: RequestResult) -> list[dict[str, str]]:
    return [{"id": call["id"], **call["function"]} for call in answer.tool_calls]


def timeless(answer: RequestResult) -> RequestResult:
    """Drop what depends on where the network cut, and with it the verdict on lumps."""
    answer = replace(answer, written_s=None, first_event_s=None, last_event_s=None, itl_ms=())
    return replace(answer, valid=True, reason=None, error=None) if answer.reason == "buffered" else answer


@pytest.mark.parametrize("name", EXPECTED)
def test_captures_cut_anywhere_read_the_same(name: str) -> None:
    data = (STREAMS / name).read_bytes()
    whole = timeless(read_pieces(name, events_of(data)))
    random_cuts = random.Random(name)
    for cuts in (0, 1, 7, 60):
        bounds = [0, *sorted(random_cuts.randrange(len(data)) for _ in range(cuts)), len(data)]
        pieces = [data[start:end] for start, end in pairwise(bounds)]
        assert timeless(read_pieces(name, pieces)) == whole


@pytest.mark.parametrize(
    "name",
    [
        "vllm-0.24-h200/k3.chat_stream_tool_auto.raw",
        "vllm-0.32-cpu/k3.chat_stream_token_ids.raw",
        "vllm-0.32-cpu/k3.cmpl_stream_contusage.raw",
        "vllm-0.32-cpu/k3.engine_killed_midstream.raw",
    ],
)
@pytest.mark.parametrize("ends", [b"\n", b"\r", b"\r\n"])
def test_captures_read_byte_by_byte_with_any_line_ends_read_the_same(name: str, ends: bytes) -> None:
    data = (STREAMS / name).read_bytes()
    whole = timeless(read_pieces(name, events_of(data)))
    pieces = [bytes([byte]) for byte in data.replace(b"\n", ends)]
    assert timeless(read_pieces(name, pieces)) == whole


@pytest.mark.parametrize("name", [name for name in EXPECTED if "_nousage" not in name][::5])
def test_a_capture_that_ends_too_soon_is_never_valid(name: str) -> None:
    data = (STREAMS / name).read_bytes()
    end_of_text = data.find(b'"finish_reason":"') if b'"finish_reason":"' in data else data.index(b'"error"')
    for end in random.Random(name).sample(range(len("data:"), end_of_text), 20):
        answer = read_pieces(name, [data[:end]])
        assert (answer.valid, answer.reason) == (False, "truncated")


# Rules of their own.


def chat_event(content: str, **choice: object) -> bytes:
    fields = "".join(f', "{name}": {value}' for name, value in choice.items())
    return f'data: {{"choices": [{{"index": 0, "delta": {{"content": "{content}"}}{fields}}}]}}\n\n'.encode()


def usage_event(tokens: int) -> bytes:
    return b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": %d}}\n\n' % tokens


FINISH = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def test_the_reader_ends_at_done_and_ignores_what_follows() -> None:
    reader = StreamReader("chat")
    ended = []
    for data in (chat_event("a") + FINISH + usage_event(1), DONE + chat_event("b")):
        reader.feed(data, 1.0)
        ended.append(reader.ended)
    assert ended == [False, True]
    reader.feed(chat_event("c") + b"data: {", 3.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.valid, answer.text, answer.done_seen) == (True, "a", True)


def test_the_reader_ends_at_an_error_object_and_not_at_a_null_error() -> None:
    reader = StreamReader("chat")
    ended = []
    for data in (b'data: {"error": null, "choices": []}\n\n', b'data: {"error": "boom"}\n\n'):
        reader.feed(data, 1.0)
        ended.append(reader.ended)
    assert ended == [False, True]
    assert reader.finish(written_s=0.0).error == "boom"


def test_progress_can_be_watched_without_counting_keep_alives() -> None:
    reader = StreamReader("chat")
    reader.feed(b": ping\n\n", 1.0)
    assert (reader.events_seen, reader.last_event_s, reader.last_read_s) == (0, None, 1.0)
    reader.feed(chat_event("a"), 2.0)
    reader.feed(b": ping\n\n", 3.0)
    assert (reader.events_seen, reader.last_event_s, reader.last_read_s) == (1, 2.0, 3.0)


def test_gaps_are_those_between_token_events() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("") + chat_event("a"), 1.0)
    reader.feed(chat_event("b"), 1.5)
    reader.feed(FINISH + usage_event(2) + DONE, 9.0)
    answer = reader.finish(written_s=0.5)
    assert (answer.ttft_ms, answer.e2el_ms, answer.itl_ms) == (500.0, 1000.0, (500.0,))


def test_events_of_one_read_have_no_gap_between_them() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a") + chat_event("b"), 1.0)
    reader.feed(chat_event("c") + chat_event("d"), 1.5)
    reader.feed(FINISH + usage_event(4) + DONE, 9.0)
    answer = reader.finish(written_s=0.5)
    assert (answer.token_events, answer.itl_ms) == (4, (500.0,))


def test_a_fault_of_the_transport_counts_where_the_answer_was_not_complete() -> None:
    lost = Fault("connection_lost", "ReadError")
    for ending, reason in (
        (b"", "connection_lost"),
        (FINISH + usage_event(1), None),
        (usage_event(1) + DONE, None),
    ):
        reader = StreamReader("chat")
        reader.feed(chat_event("a") + ending, 1.0)
        answer = reader.finish(written_s=0.0, fault=lost)
        assert (answer.reason, answer.error) == (reason, "ReadError" if reason else None)


def test_an_error_of_the_server_explains_more_than_the_lost_connection_after_it() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a") + b'data: {"error": {"message": "dead", "code": 500}}\n\n', 1.0)
    answer = reader.finish(written_s=0.0, fault=Fault("connection_lost", "ReadError"))
    assert (answer.reason, answer.error) == ("error_object", "dead (code 500)")


def test_an_event_that_is_no_json_spoils_the_answer() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a") + b"data: {broken\n\n" + FINISH + usage_event(2) + DONE, 1.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.reason, answer.error) == ("bad_json", "an event was b'{broken'")


def test_an_empty_event_is_a_keep_alive() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a") + b"data:\n\ndata: \n\n" + FINISH + usage_event(1) + DONE, 1.0)
    assert reader.finish(written_s=0.0).valid


def test_a_page_instead_of_a_stream_is_garbage_and_nothing_at_all_is_truncated() -> None:
    reader = StreamReader("chat")
    reader.feed(b"<html>Sign in</html>", 1.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.reason, answer.error) == ("garbage", "the answer began with b'<html>Sign in</html>'")
    answer = StreamReader("chat").finish(written_s=0.0)
    assert (answer.reason, answer.error) == ("truncated", "the stream ended after 0 token events")


def test_done_alone_is_an_answer_without_tokens() -> None:
    reader = StreamReader("chat")
    reader.feed(DONE, 1.0)
    assert reader.finish(written_s=0.0).reason == "no_tokens"


def test_an_answer_that_the_server_gave_up_failed() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a") + chat_event("", finish_reason='"abort"') + usage_event(1) + DONE, 1.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.reason, answer.error) == ("aborted", "finish_reason was 'abort'")


def test_the_last_event_counts_without_its_blank_line_unless_it_was_cut() -> None:
    for tail, output_tokens in ((usage_event(1).rstrip(), 1), (usage_event(1)[:-9], None)):
        reader = StreamReader("chat")
        reader.feed(chat_event("a") + FINISH + tail, 1.0)
        answer = reader.finish(written_s=0.0)
        assert answer.output_tokens == output_tokens
        assert answer.reason == (None if output_tokens else "truncated")


def test_a_last_event_without_its_blank_line_may_be_the_first_token() -> None:
    reader = StreamReader("completions")
    reader.feed(b'data: {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}],', 1.0)
    reader.feed(b' "usage": {"completion_tokens": 1}}', 2.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.valid, answer.text, answer.first_event_s) == (True, "a", 2.0)


def test_token_ids_that_some_chunk_lacks_are_not_compared() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a", token_ids=[1]) + chat_event("b") + FINISH + usage_event(3) + DONE, 1.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.valid, answer.token_ids) == (True, None)


def test_token_ids_that_disagree_with_usage_spoil_the_answer() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("a", token_ids=[1]) + FINISH + usage_event(3) + DONE, 1.0)
    assert reader.finish(written_s=0.0).reason == "token_count_mismatch"


def test_tokens_of_the_first_event_come_from_token_ids_without_running_usage() -> None:
    reader = StreamReader("chat")
    reader.feed(chat_event("", token_ids=[1]) + chat_event("a", token_ids=[2, 3]), 1.0)
    reader.feed(chat_event("b", token_ids=[4]) + FINISH + usage_event(4) + DONE, 2.0)
    answer = reader.finish(written_s=0.0)
    assert (answer.first_event_tokens, answer.token_ids, answer.tpot_ms) == (3, (1, 2, 3, 4), 1000.0)


def test_every_reason_used_here_is_known() -> None:
    reasons = {found["reason"] for found in EXPECTED.values()} | {reason for reason, _ in VERDICTS.values()}
    assert reasons - {None} <= set(SENTENCES)
    assert "error_object" in SERVER_FAULTS
