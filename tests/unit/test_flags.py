"""Flags: what each means, how they are counted, and when two arms did different work."""

from __future__ import annotations

import pytest
from equivalence_data import answer

from pytest_sparkperf.core.flags import (
    DEGENERATE,
    FLAG_SENTENCES,
    PAST_END,
    count_flags,
    different_work,
    flag_words,
    is_degenerate,
    is_past_end,
)
from pytest_sparkperf.core.result import FlagCount

END = frozenset({2, 7})
LOOP = answer(token_ids=(5,) * 20)
SOUND = answer(token_ids=tuple(range(100, 120)))


def test_degenerate_goes_by_token_ids_then_by_words() -> None:
    assert is_degenerate(LOOP) is True
    assert is_degenerate(SOUND) is False
    assert is_degenerate(answer("a " * 20)) is True
    assert is_degenerate(answer("word", reasoning="a " * 60)) is True


def test_degenerate_is_unknown_where_nothing_was_said() -> None:
    assert is_degenerate(answer()) is None


@pytest.mark.parametrize(
    ("ids", "expected"),
    [((1, 2, 3), True), ((1, 3, 2), False), ((7, 7, 7), True), ((1, 3, 4), False), ((2,), False)],
)
def test_past_end_means_an_end_token_before_the_last_one(ids: tuple[int, ...], expected: bool) -> None:
    assert is_past_end(answer(token_ids=ids), END) is expected


def test_past_end_is_unknown_without_ids_or_end_tokens() -> None:
    assert is_past_end(answer("text"), END) is None
    assert is_past_end(SOUND, None) is None
    assert is_past_end(SOUND, frozenset()) is None


def test_flags_are_counted_over_answers_of_which_they_can_be_told() -> None:
    counts = count_flags([LOOP, SOUND, answer("two words"), answer()], END)

    assert counts == {DEGENERATE: FlagCount(1, 3), PAST_END: FlagCount(0, 2)}
    assert counts[DEGENERATE].share == pytest.approx(1 / 3)
    assert flag_words(counts) == "degenerate 1/3"


def test_a_flag_that_nobody_could_tell_has_no_share() -> None:
    assert FlagCount(0, 0).share is None


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (FlagCount(0, 10), FlagCount(1, 10), True),
        (FlagCount(0, 10), FlagCount(2, 10), False),
        (FlagCount(9, 10), FlagCount(10, 10), True),  # 1 - 0.9 is more than 0.1 in binary
        (FlagCount(0, 0), FlagCount(10, 10), True),
        (FlagCount(10, 10), FlagCount(0, 0), True),
        (FlagCount(12, 12), FlagCount(0, 12), False),
    ],
)
def test_shares_may_differ_by_ten_points(first: FlagCount, second: FlagCount, same: bool) -> None:
    found = different_work(("A", "B"), {DEGENERATE: first}, {DEGENERATE: second})

    assert (found is None) == same


def test_different_work_says_which_flag_how_often_and_what_to_do() -> None:
    found = different_work(("k=0", "k=3"), {PAST_END: FlagCount(0, 12)}, {PAST_END: FlagCount(9, 12)})

    assert found == (
        "past_end: 0/12 answers of k=0 against 9/12 of k=3, more than 10 points apart: they did different "
        "work, so their speeds cannot be compared. The model ended its answer before the output length was "
        "reached; what follows under ignore_eos is text it never meant to write. Compare the texts, or use "
        "prompts with longer answers"
    )


def test_a_flag_that_one_side_does_not_count_is_not_compared() -> None:
    assert different_work(("A", "B"), {PAST_END: FlagCount(9, 12)}, {}) is None


def test_every_flag_has_a_sentence() -> None:
    assert FLAG_SENTENCES == {
        DEGENERATE: "At least a third of the answer is one block repeated, which drafts predict best.",
        PAST_END: "The model ended its answer before the output length was reached; what follows under"
        " ignore_eos is text it never meant to write.",
    }
