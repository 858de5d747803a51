"""Tool calls and structured answers: faults of one answer, differences between two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from equivalence_data import answer, calls, case
from hypothesis import assume, given
from hypothesis import strategies as st
from recorded_streams import STREAMS, load_cases

from pytest_sparkperf.core.stream import StreamReader
from pytest_sparkperf.core.tool_set import CITY_SCHEMA, TRAINS, WEATHER
from pytest_sparkperf.core.toolcheck import (
    ALTERED_ARGUMENTS,
    ALTERED_NAME,
    BROKEN_JSON,
    CALL_COUNT,
    DOUBLED_DELTA,
    LOST_DELTA,
    NO_TOOL_CALL,
    PATTERN_MISMATCH,
    SCHEMA_INVALID,
    TOOL_CALL_LEAK,
    UNKNOWN_TOOL,
    Expected,
    Finding,
    answer_faults,
    compare_calls,
    delta_fault,
    parse_strict,
    read_calls,
    same_value,
    tool_call_leak,
)
from pytest_sparkperf.core.validity import Expectation

ROME = '{"city": "Rome"}'
WITH_TOOLS = Expected(tools=(WEATHER, TRAINS))


def needs_city(value: Any, schema: Mapping[str, Any]) -> Sequence[str]:
    """Stand in for a schema library: the key city must be there."""
    return () if isinstance(value, dict) and "city" in value else ("$: 'city' is a required property",)


# ---------------------------------------------------------------- two answers


def test_arguments_lost_in_the_first_of_two_calls_are_found_there() -> None:
    found = case("G06")
    off, on = (answer(found[arm]["content"], tool_calls=found[arm]["tool_calls"]) for arm in ("off", "on"))

    assert off.text == on.text
    assert compare_calls(off, on) == (Finding(LOST_DELTA, "'' instead of '{\"from\": \"Pisa\"}'", 0),)


def test_valid_but_other_arguments_differ_though_the_reasoning_is_equal() -> None:
    found = case("G07")
    off, on = (
        answer(found[arm]["content"], tool_calls=found[arm]["tool_calls"], reasoning=found[arm]["reasoning"])
        for arm in ("off", "on")
    )

    assert off.reasoning == on.reasoning
    assert all(call.broken is None for call in read_calls(on))
    assert compare_calls(off, on) == (
        Finding(ALTERED_ARGUMENTS, '\'{"command=ls": ""}\' instead of \'{"command": "ls"}\'', 0),
    )


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ([("f", '{"a": 1, "b": [2]}')], [("f", '{"b":[2],"a":1.0}')], []),
        ([("f", '{"a": 1}')], [("f", '{"a": true}')], [ALTERED_ARGUMENTS]),
        ([("f", '{"a": 1}')], [("g", '{"a": 1}')], [ALTERED_NAME]),
        ([("f", '{"a": 1}')], [], [CALL_COUNT]),
        ([], [("f", "{}")], [CALL_COUNT]),
        ([("f", "{}"), ("f", "{}")], [("f", '{"x": 1}')], [ALTERED_ARGUMENTS, CALL_COUNT]),
        ([("f", '{"a": "bc"}')], [("f", '{"a": "b')], [LOST_DELTA]),
        ([("f", '{"a": "bc"}')], [("f", '{"a": "bc"}c"}')], [DOUBLED_DELTA]),
        ([("f", '{"a": "bc"}')], [("f", '{"a": "bc" nonsense}')], [ALTERED_ARGUMENTS]),
        ([("f", '{"a": ')], [("f", '{"a": ')], []),
        ([("f", '{"a": 12}')], [("f", '{"a": 1}')], [ALTERED_ARGUMENTS]),
    ],
)
def test_calls_are_compared_by_name_and_value_in_order(
    first: list[tuple[str, str]], second: list[tuple[str, str]], names: list[str]
) -> None:
    found = compare_calls(answer(tool_calls=calls(*first)), answer(tool_calls=calls(*second)))

    assert [finding.name for finding in found] == names


def test_equal_tokens_with_other_arguments_are_the_streams_fault() -> None:
    first, second = (answer(tool_calls=calls(("f", text))) for text in ('{"a": 12}', '{"a": 1}'))

    assert [finding.name for finding in compare_calls(first, second, same_tokens=True)] == [LOST_DELTA]


@given(text=st.text(min_size=1), cut=st.data())
def test_a_lost_piece_is_called_lost(text: str, cut: st.DataObject) -> None:
    start = cut.draw(st.integers(0, len(text) - 1))
    end = cut.draw(st.integers(start + 1, len(text)))

    assert delta_fault(text, text[:start] + text[end:]) == LOST_DELTA


@given(text=st.text(min_size=1), cut=st.data())
def test_a_piece_that_came_twice_is_called_doubled(text: str, cut: st.DataObject) -> None:
    start = cut.draw(st.integers(0, len(text) - 1))
    end = cut.draw(st.integers(start + 1, len(text)))

    assert delta_fault(text, text[:end] + text[start:end] + text[end:]) == DOUBLED_DELTA


@given(st.text())
def test_equal_texts_have_no_delta_fault(text: str) -> None:
    assert delta_fault(text, text) is None


def test_an_insertion_that_copies_nothing_is_no_doubled_delta() -> None:
    assert delta_fault("abcdef", "abcXYdef") is None
    assert delta_fault("abcdef", "abXdeY") is None


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]}, True),
        (True, 1, False),
        (False, 0, False),
        ([True], [1], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1, 2], [2, 1], False),
        ("1", 1, False),
        (None, False, False),
        ({}, [], False),
    ],
)
def test_values_are_equal_as_json_has_it(one: Any, other: Any, same: bool) -> None:
    assert same_value(one, other) is same
    assert same_value(other, one) is same


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, _JSON)
def test_same_value_agrees_with_canonical_json(one: Any, other: Any) -> None:
    texts = [json.dumps(value, sort_keys=True) for value in (one, other)]

    assert same_value(one, other) == (texts[0] == texts[1])


@pytest.mark.parametrize(
    "text", ["", "{", "{} {}", '{"a": NaN}', "Infinity", '{"a": 1, "a": 1}', "[" * 100_000], ids=range(7)
)
def test_what_a_standard_reader_refuses_is_broken(text: str) -> None:
    with pytest.raises(ValueError):
        parse_strict(text)


# ---------------------------------------------------------------- one answer


@pytest.mark.parametrize(
    ("pairs", "expected", "findings"),
    [
        ([("get_weather", ROME)], WITH_TOOLS, []),
        (
            [("get_weather", '{"city": "Ro')],
            WITH_TOOLS,
            [
                Finding(
                    BROKEN_JSON,
                    '\'{"city": "Ro\' (Unterminated string starting at: line 1 column 10 (char 9))',
                    0,
                )
            ],
        ),
        ([("get_weather", "")], WITH_TOOLS, [Finding(BROKEN_JSON, "'' (there are none)", 0)]),
        (
            [("get_whether", ROME)],
            WITH_TOOLS,
            [Finding(UNKNOWN_TOOL, "'get_whether'; the tools are get_weather, find_trains", 0)],
        ),
        (
            [("get_weather", ROME), ("get_weather", '{"town": "Rome"}')],
            Expected(tools=(WEATHER,), check=needs_city),
            [Finding(SCHEMA_INVALID, "$: 'city' is a required property", 1)],
        ),
        ([("get_weather", '{"town": "Rome"}')], WITH_TOOLS, []),  # without a check nothing is validated
        ([], Expected(tools=(WEATHER,), calls=True), [Finding(NO_TOOL_CALL, "the answer was ''")]),
    ],
)
def test_faults_of_calls(pairs: list[tuple[str, str]], expected: Expected, findings: list[Finding]) -> None:
    assert list(answer_faults(answer(tool_calls=calls(*pairs)), expected)) == findings


@pytest.mark.parametrize(
    ("text", "leak"),
    [
        ("It is sunny in Rome.", None),
        ("a < b and c > d, f(x) = <b>bold</b>", None),
        ('<tool_call>\n{"name": "f"}', "<tool_call>"),
        ("text </tool_call>", "</tool_call>"),
        ("<function=get_weather>\n<parameter=city>", "<function=get_weather>"),
        ("\n</parameter>\n</function>", "</parameter>"),
        ('[TOOL_CALLS][{"name": "f"}]', "[TOOL_CALLS]"),
        ("<|tool_call|>f", "<|tool_call|>"),
        ("<|python_tag|>f()", "<|python_tag|>"),
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>"),
        ("<minimax:tool_call>", "<minimax:tool_call>"),
    ],
)
def test_tool_syntax_in_the_content_is_a_leak(text: str, leak: str | None) -> None:
    assert tool_call_leak(text) == leak
    found = answer_faults(answer(text), WITH_TOOLS)
    assert found == (() if leak is None else (Finding(TOOL_CALL_LEAK, f"the content holds {leak!r}"),))


def test_without_tools_the_syntax_is_just_text() -> None:
    assert answer_faults(answer("write <function=f> there"), Expected()) == ()


def test_an_answer_that_the_length_limit_cut_off_is_not_broken() -> None:
    cut = answer("<tool_call>", tool_calls=calls(("get_weather", '{"city": "Ro')), length_limited=True)

    assert [found.name for found in answer_faults(cut, WITH_TOOLS)] == [TOOL_CALL_LEAK]


def test_structured_answers_are_valid_without_and_broken_with_speculation() -> None:
    found = case("G09")
    expected = Expected(schema={"type": "object"}, check=needs_city)

    assert answer_faults(answer(found["off"]["content"]), expected) == ()
    assert [fault.name for fault in answer_faults(answer(found["on"]["content"]), expected)] == [BROKEN_JSON]
    wrong_key = answer('{"location": "Turin"}')
    assert [fault.name for fault in answer_faults(wrong_key, expected)] == [SCHEMA_INVALID]


def test_content_must_match_a_pattern_whole() -> None:
    expected = Expected(pattern=r"\d{4}-\d{2}-\d{2}")

    assert answer_faults(answer("1969-07-20\n"), expected) == ()
    assert answer_faults(answer("On 1969-07-20"), expected) == (
        Finding(PATTERN_MISMATCH, r"'On 1969-07-20' is not \d{4}-\d{2}-\d{2}"),
    )


def test_long_texts_are_shown_by_their_beginning() -> None:
    (found,) = answer_faults(answer("x" * 100), Expected(schema=CITY_SCHEMA))

    assert str(found) == f"broken_json: '{'x' * 60}...' (Expecting value: line 1 column 1 (char 0))"


def test_a_finding_reads_as_a_line() -> None:
    assert str(Finding(BROKEN_JSON, "seen", 2)) == "broken_json in call 2: seen"
    assert str(Finding(CALL_COUNT)) == "call_count"


# ---------------------------------------------------------------- recorded streams


def read(name: str) -> Any:
    reader = StreamReader("chat")
    reader.feed((STREAMS / f"{name}.raw").read_bytes(), 1.0)
    return reader.finish(written_s=0.0, status=200)


@pytest.mark.parametrize(
    "name", ["vllm-0.24-h200/k3", "vllm-0.32-cpu/off", "vllm-0.32-cpu/k1", "vllm-0.32-cpu/k3"]
)
def test_recorded_tool_calls_are_sound(name: str) -> None:
    found = read(f"{name}.chat_stream_tool_auto")

    assert answer_faults(found, Expected(tools=(WEATHER,), calls=True, check=needs_city)) == ()


def test_a_call_that_the_token_limit_cut_off_is_no_fault_though_it_claims_to_be_done() -> None:
    (found,) = (one for one in load_cases() if one.name == "A30")
    reader = StreamReader("chat", expectation=Expectation(max_tokens=found.expected["max_tokens"]))
    for at_s, data in found.writes:
        reader.feed(data, at_s)
    cut = reader.finish(written_s=0.0, status=200)

    assert (cut.finish_reason, cut.length_limited) == ("tool_calls", True)
    assert read_calls(cut)[0].broken is not None
    assert [one for one in answer_faults(cut, WITH_TOOLS) if one.name == BROKEN_JSON] == []


@pytest.mark.parametrize("arm", ["k1", "k3"])
def test_recorded_tool_calls_are_equal_with_and_without_speculation(arm: str) -> None:
    off, on = (read(f"vllm-0.32-cpu/{name}.chat_stream_tool_auto") for name in ("off", arm))

    assert [call.value for call in read_calls(off)] == [{"city": "Rome"}]
    assert compare_calls(off, on) == ()


@given(data=st.data())
def test_a_recorded_call_with_one_delta_lost_or_doubled_is_named(data: st.DataObject) -> None:
    deltas = ['{"city": "R', "om", "e", '"}']
    at = data.draw(st.integers(0, len(deltas) - 1))
    doubled = data.draw(st.booleans())
    sent = deltas[: at + 1] + deltas[at:] if doubled else deltas[:at] + deltas[at + 1 :]
    assume("".join(sent) != "".join(deltas))
    first, second = (answer(tool_calls=calls(("f", "".join(parts)))) for parts in (deltas, sent))

    (found,) = compare_calls(first, second, same_tokens=True)

    assert found.name == (DOUBLED_DELTA if doubled else LOST_DELTA)
