from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sparkperf.core import validity
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.validity import (
    Expectation,
    Fault,
    find_fault,
    is_length_limited,
    prompt_length_warning,
)

SOUND = RequestResult(
    valid=True,
    first_event_s=1.0,
    last_event_s=2.0,
    token_events=8,
    itl_ms=(1000 / 7,) * 7,
    output_tokens=16,
    finish_reason="stop",
)
OPEN = Expectation()


def test_every_reason_is_of_one_class_and_has_a_sentence() -> None:
    reasons = {
        value
        for name, value in vars(validity).items()
        if name.isupper() and name[0] != "_" and isinstance(value, str)
    }
    assert reasons == set(validity.SENTENCES)
    assert reasons == validity.SERVER_FAULTS | validity.MEASUREMENT_FAULTS
    assert not validity.SERVER_FAULTS & validity.MEASUREMENT_FAULTS
    assert all(text.endswith(".") for text in validity.SENTENCES.values())


def test_the_servers_faults_are_those_that_the_error_rate_counts() -> None:
    assert {
        "http_error",
        "error_object",
        "aborted",
        "truncated",
        "timeout",
        "connect_failed",
        "connection_lost",
        "bad_json",
        "garbage",
    } == validity.SERVER_FAULTS


def test_a_sound_answer_has_no_fault() -> None:
    assert find_fault(SOUND, Expectation(tokens=16, max_tokens=16, k=3)) is None


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (replace(SOUND, token_events=0), Fault("no_tokens")),
        (replace(SOUND, output_tokens=None), Fault("no_usage")),
        (
            replace(SOUND, token_ids=(1, 2)),
            Fault("token_count_mismatch", "usage says 16 tokens, token_ids 2"),
        ),
    ],
)
def test_an_answer_that_cannot_be_counted_is_not_measured(answer: RequestResult, fault: Fault) -> None:
    assert find_fault(answer, OPEN) == fault


def test_an_answer_shorter_than_asked_for_is_not_comparable() -> None:
    assert find_fault(SOUND, Expectation(tokens=256)) == Fault("stopped_early", "16 of 256 tokens")
    assert find_fault(SOUND, Expectation(max_tokens=256)) is None


def test_several_events_at_one_instant_are_a_lump_and_a_few_are_not() -> None:
    at_once = replace(SOUND, itl_ms=(0.0,) * 7)
    assert find_fault(at_once, OPEN) == Fault("buffered", "16 tokens came at 1 instants")
    few = replace(SOUND, token_events=3, itl_ms=(0.0, 0.0), output_tokens=4)
    assert find_fault(few, OPEN) is None


@pytest.mark.parametrize(("k", "most"), [(0, 32), (3, 128), (None, 128), (7, 256)])
def test_tokens_per_instant_far_above_what_drafts_can_give_are_a_lump(k: int | None, most: int) -> None:
    assert find_fault(replace(SOUND, output_tokens=most), Expectation(k=k)) is None
    fault = find_fault(replace(SOUND, output_tokens=most + 1), Expectation(k=k))
    assert fault == Fault("buffered", f"{most + 1} tokens came at 8 instants")


def test_a_tool_call_parser_may_hold_text_back_but_not_send_all_at_once() -> None:
    calls = ({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},)
    assert find_fault(replace(SOUND, output_tokens=1000, tool_calls=calls), OPEN) is None
    at_once = replace(SOUND, itl_ms=(0.0,) * 7, tool_calls=calls)
    assert find_fault(at_once, OPEN) == Fault("buffered", "16 tokens came at 1 instants")


def test_the_count_tells_a_limited_answer_whatever_its_finish_reason() -> None:
    assert is_length_limited(replace(SOUND, finish_reason="tool_calls"), 16) is True
    assert is_length_limited(replace(SOUND, finish_reason="length"), 17) is False
    assert is_length_limited(replace(SOUND, finish_reason="length"), None) is True
    assert is_length_limited(SOUND, None) is False
    assert is_length_limited(replace(SOUND, finish_reason=None), None) is None


def test_a_prompt_off_its_label_is_told() -> None:
    assert prompt_length_warning(803, 4096) == (
        "the prompt has 803 tokens by the server's count, -80.4% off the 4096 it is labelled with; rates"
        " use the server's count, so name the workload after that"
    )
    assert prompt_length_warning(4096 * 102 // 100, 4096) is None
    assert prompt_length_warning(None, 4096) is None
    assert prompt_length_warning(803, None) is None
