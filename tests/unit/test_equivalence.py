"""Comparing two answers: where they part, and how that is to be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from equivalence_data import answer, calls, case, generation, h200
from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.core.acceptance import pool_requests
from pytest_sparkperf.core.equivalence import (
    NEAR_TIE_NATS,
    Comparison,
    Difference,
    Generation,
    candidate_gap,
    compare,
    compare_values,
    is_near_tie,
    with_choices,
)
from pytest_sparkperf.core.logprobs import Choice
from pytest_sparkperf.core.toolcheck import DOUBLED_DELTA, LOST_DELTA

IDS = st.lists(st.integers(0, 5), max_size=12)


def tie(gap: float = 0.0, moved: float = 0.0) -> tuple[Choice, Choice]:
    """Return the choices of two answers that took "a" and "b", ``gap`` apart, seen ``moved`` apart."""
    first = Choice("a", {"a": -0.7, "b": -0.7 - gap})
    second = Choice("b", {"a": -0.7 - gap - moved, "b": -0.7 - moved})
    return first, second


def at_two(choice: Choice | None) -> dict[int, Choice]:
    return {} if choice is None else {2: choice}


# ---------------------------------------------------------------- where


@given(IDS, IDS)
def test_position_is_the_length_of_the_common_beginning(first: list[int], second: list[int]) -> None:
    found = compare(generation(first), generation(second))

    at = found.agreed
    assert first[:at] == second[:at]
    assert first[at : at + 1] != second[at : at + 1] or first == second
    assert (found.kind == "equal") == (first == second)


@given(IDS, IDS, st.integers(0, 12))
def test_nothing_behind_the_limit_counts(first: list[int], second: list[int], limit: int) -> None:
    found = compare(generation(first), generation(second), limit=limit)

    assert (found.kind == "equal") == (first[:limit] == second[:limit])
    assert found.agreed <= limit


def test_an_answer_that_ends_early_parts_at_its_end() -> None:
    found = compare(generation([1, 2, 3]), generation([1, 2]))

    assert found == Comparison("divergent", 2, Difference("tokens", 2, "token"))


def test_short_probe_agrees_where_the_long_one_does_not() -> None:
    expected = case("G13")
    first = generation([1] * 400)
    second = generation([1] * 212 + [2] * 188)

    assert (compare(first, second, limit=32).kind == "equal") is expected["max_tokens_32"]["equal"]
    found = compare(first, second, limit=400)
    assert found.kind == "divergent"
    assert found.agreed == expected["max_tokens_400"]["first_diff_token"]


def test_twelve_answers_of_an_h200_are_equal_off_off_and_off_on() -> None:
    off, off2, k3 = (
        [generation(one["token_ids"], text=one["text"]) for one in h200(arm)["answers"]]
        for arm in ("off", "off2", "k3")
    )

    assert [compare(one, again) for one, again in zip(off, off2, strict=True)] == [
        Comparison("equal", 256)
    ] * 12
    assert [compare(one, other) for one, other in zip(off, k3, strict=True)] == [
        Comparison("equal", 256)
    ] * 12


# ---------------------------------------------------------------- near-ties


def test_late_near_tie_is_found_where_the_maintainers_put_it() -> None:
    found = case("G01")
    arms = []
    for arm, own in (("off", "a"), ("on", "the")):
        told = found[arm]
        choice = Choice(own, told["top_logprobs_at_first_diff"])
        arms.append(generation(told["tokens"], {99: choice}))

    comparison = compare(*arms)

    assert comparison.kind == "near_tie"
    assert comparison.agreed == 99
    difference = comparison.difference
    assert difference is not None
    assert (difference.position, difference.unit) == (99, "token")
    assert (difference.first, difference.second) == (arms[0].choices[99], arms[1].choices[99])
    assert difference.first_gap == pytest.approx(0.002)
    assert difference.second_gap == pytest.approx(0.0032)


@pytest.mark.parametrize(
    ("gap", "moved", "expected"),
    [
        (0.0, 0.0, True),
        (0.125, 0.0, True),  # one step of bfloat16, what prefix caching did (G03)
        (NEAR_TIE_NATS - 1e-9, 0.0, True),
        (NEAR_TIE_NATS + 1e-9, 0.0, False),
        (3.0, 0.0, False),
        (0.1, 0.1, True),
        (0.1, 0.5, False),  # close together, but both answers saw something else
    ],
)
def test_near_tie_is_bounded_in_gap_and_in_movement(gap: float, moved: float, expected: bool) -> None:
    first, second = tie(gap, moved)

    assert is_near_tie(first, second) is expected
    assert is_near_tie(second, first) is expected
    found = compare(generation([1, 2, 3], at_two(first)), generation([1, 2, 4], at_two(second)))
    assert found.kind == ("near_tie" if expected else "divergent")


def test_one_answer_that_was_sure_makes_no_near_tie() -> None:
    first, _ = tie()
    sure = Choice("b", {"b": -0.01, "a": -5.0})

    assert not is_near_tie(first, sure)


@pytest.mark.parametrize("known", [(True, False), (False, True), (False, False)])
def test_what_is_not_known_is_no_near_tie(known: tuple[bool, bool]) -> None:
    first, second = (choice if told else None for choice, told in zip(tie(), known, strict=True))

    found = compare(generation([1, 2, 3], at_two(first)), generation([1, 2, 4], at_two(second)))

    assert found.kind == "divergent"
    assert found.difference == Difference("tokens", 2, "token", first, second)


def test_a_token_that_is_not_among_the_candidates_makes_no_near_tie() -> None:
    first, second = tie()

    assert not is_near_tie(replace(first, candidates={"a": -0.7}), second)


def test_two_tokens_of_the_same_text_cannot_be_told_apart() -> None:
    choice = Choice("\ufffd", {"\ufffd": -0.7, "b": -0.7})

    assert not is_near_tie(choice, choice)
    assert candidate_gap(choice, "\ufffd", "\ufffd") is None


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_wider_gap_is_never_nearer(one: float, other: float) -> None:
    narrow, wide = sorted((one, other))

    assert is_near_tie(*tie(narrow)) or not is_near_tie(*tie(wide))


# ---------------------------------------------------------------- channels


def test_equal_content_with_other_reasoning_is_a_difference_of_its_own_channel() -> None:
    found = case("G15")
    off, on = (
        Generation(answer(found[arm]["content"], reasoning=found[arm]["reasoning"])) for arm in ("off", "on")
    )

    comparison = compare(off, on)

    assert off.result.text == on.result.text
    assert comparison == Comparison("divergent", 7, Difference("reasoning", 7, "character"))


def test_collapse_differs_from_the_first_character() -> None:
    found = case("G10")
    off, on = (Generation(answer(found[arm]["content"])) for arm in ("off", "on"))

    assert compare(off, on) == Comparison("divergent", 0, Difference("content", 0, "character"))


def test_first_answer_of_a_fresh_server_differs_and_the_later_ones_agree() -> None:
    found = case("G03")
    runs = [Generation(answer(run["content"])) for run in found["runs"]]

    assert [compare(runs[0], run).kind for run in runs[1:]] == ["divergent"] * 3
    assert [compare(runs[1], run).kind for run in runs[2:]] == ["equal"] * 2
    assert max(found["top2_gap"]) < NEAR_TIE_NATS


def test_same_text_at_another_speed_is_equal() -> None:
    found = case("G04")
    texts = [Generation(answer(run["content"])) for arm in ("off", "on") for run in found[arm]]

    assert {compare(texts[0], text).kind for text in texts} == {"equal"}
    rates = [pool_requests([(run["accepted"], run["drafted"])]).rate for run in found["on"]]
    assert [round(100 * rate, 1) for rate in rates if rate is not None] == [79.0, 52.2]


@pytest.mark.parametrize(
    ("seen", "name"),
    [("The quick fox jumps.", LOST_DELTA), ("The quick brown brown fox jumps.", DOUBLED_DELTA)],
)
def test_equal_tokens_with_other_text_name_the_fault_of_the_stream(seen: str, name: str) -> None:
    found = compare(generation([1, 2], text="The quick brown fox jumps."), generation([1, 2], text=seen))

    assert found.kind == "divergent"
    assert found.difference is not None
    assert found.difference.names == (name,)
    assert found.agreed == 2


def test_without_ids_a_fault_is_named_where_the_texts_come_together_again() -> None:
    text = "The quick brown fox jumps over the lazy dog."
    lost = text.replace("brown ", "")

    resynced = compare(Generation(answer(text)), Generation(answer(lost)))
    cut = compare(Generation(answer(text)), Generation(answer(text[:20])))

    assert resynced.difference == Difference("content", 10, "character", names=(LOST_DELTA,))
    assert cut.difference == Difference("content", 20, "character")


def test_ids_made_of_text_are_not_compared_with_ids_of_the_server() -> None:
    first = generation([1, 2, 3], text="same")
    second = replace(generation([1, 23], text="same"), retokenized=True)

    assert compare(first, second) == Comparison("equal", 4)


def test_ids_made_of_text_give_the_token_where_texts_part() -> None:
    first, second = (
        replace(generation(ids, text=text), retokenized=True)
        for ids, text in (([1, 2, 3], "one two three"), ([1, 4, 3], "one xyz three"))
    )

    assert compare(first, second) == Comparison("divergent", 1, Difference("tokens", 1, "token"))


# ---------------------------------------------------------------- by value


def test_the_same_call_after_other_thoughts_is_equal_by_value() -> None:
    first = generation([1, 2, 3], reasoning="a", tool_calls=calls(("f", '{"a": 1}')))
    second = generation([1, 9, 3], reasoning="b", tool_calls=calls(("f", '{"a":1}')))

    assert compare(first, second).kind == "divergent"
    assert compare_values(first, second).kind == "equal"


def test_another_call_is_read_by_the_first_difference_of_its_tokens() -> None:
    one, other = tie(0.01)
    first = generation([1, 2, 3], at_two(one), tool_calls=calls(("f", '{"a": 1}')))
    second = generation([1, 2, 4], at_two(other), tool_calls=calls(("f", '{"a": 2}')))

    found = compare_values(first, second)

    assert found.kind == "near_tie"
    assert found.difference is not None
    assert found.difference.position == 2
    assert found.difference.names == ("altered_arguments in call 0: '{\"a\": 2}' instead of '{\"a\": 1}'",)


@pytest.mark.parametrize("name", ["G06", "G07"])
def test_calls_that_differ_without_tokens_are_divergent_in_call_0(name: str) -> None:
    found = case(name)
    off, on = (
        Generation(answer(found[arm]["content"], tool_calls=found[arm]["tool_calls"]))
        for arm in ("off", "on")
    )

    comparison = compare_values(off, on)

    assert comparison.kind == "divergent"
    assert comparison.difference is not None
    assert (comparison.difference.channel, comparison.difference.position) == ("tool_calls", 0)


@pytest.mark.parametrize(
    ("text", "kind"), [('{"a": 1}', "equal"), ('{"a": 2}', "divergent"), ('{"a": 1', "divergent")]
)
def test_json_is_compared_by_value(text: str, kind: str) -> None:
    first, second = generation([1, 2], text='{ "a": 1 }'), generation([1, 3], text=text)

    assert compare_values(first, second).kind == kind


def test_answers_without_calls_are_compared_as_text() -> None:
    assert compare_values(generation([1, 2], text="x"), generation([1, 2], text="x")).kind == "equal"
    assert compare_values(generation([1, 2]), generation([1, 3])).kind == "divergent"


# ---------------------------------------------------------------- choices of a repetition


def test_choices_of_a_repetition_count_as_far_as_the_tokens_agree() -> None:
    choices = {at: Choice(str(at), {}) for at in range(4)}

    same = with_choices(generation([1, 2, 3, 4]), generation([1, 2, 3, 4], choices))
    parted = with_choices(generation([1, 2, 3, 4]), generation([1, 2, 9, 4], choices))

    assert dict(same.choices) == choices
    assert list(parted.choices) == [0, 1]


def test_no_repetition_gives_no_choices() -> None:
    alone = generation([1])

    assert with_choices(alone, None) is alone
    assert with_choices(alone, generation([1])) is alone
