"""Repetition: blocks that come over and over are found, sound text is not."""

from __future__ import annotations

import pytest
from equivalence_data import case, h200
from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.repetition import MAX_PERIOD, is_repetitive, repeated_share


@pytest.mark.parametrize(
    ("tokens", "share"),
    [
        ("", 0.0),
        ("abcdefgh", 0.0),
        ("abab", 0.0),  # twice
        ("ababab", 1.0),
        ("abababa", 1.0),  # the last copy is cut off
        ("xyabababzw", 0.6),
        ("aaaa", 1.0),
        ("abcxabcyabcz", 0.0),  # something stands between
    ],
)
def test_share_is_that_of_the_longest_block_in_a_row(tokens: str, share: float) -> None:
    assert repeated_share(tokens) == pytest.approx(share)


@given(
    head=st.lists(st.integers(0, 10**9), max_size=40, unique=True),
    block=st.lists(st.integers(10**9 + 1, 2 * 10**9), min_size=1, max_size=MAX_PERIOD, unique=True),
    copies=st.integers(3, 6),
)
def test_any_block_of_up_to_64_tokens_is_found_behind_any_beginning(
    head: list[int], block: list[int], copies: int
) -> None:
    tokens = head + block * copies

    assert repeated_share(tokens) == pytest.approx(len(block) * copies / len(tokens))


@given(st.lists(st.integers(), unique=True, max_size=300))
def test_tokens_that_are_all_different_never_repeat(tokens: list[int]) -> None:
    assert repeated_share(tokens) == 0.0


def test_collapsed_text_is_repetitive() -> None:
    words = case("G10")["on"]["content"].split()

    assert is_repetitive(words)


def test_fewer_than_16_tokens_are_never_repetitive() -> None:
    assert not is_repetitive("a" * 15)
    assert is_repetitive("a" * 16)


def test_a_third_of_the_answer_is_the_bound() -> None:
    assert is_repetitive([*range(100, 130), *([1] * 15)])
    assert not is_repetitive([*range(100, 130), *([1] * 14)])


# Six of these answers end in a loop that began before the last third; the others count or list grammar rules.
def test_loops_of_a_real_model_are_found_alike_with_and_without_speculation() -> None:
    looping = {
        arm: [at for at, one in enumerate(h200(arm)["answers"]) if is_repetitive(one["token_ids"])]
        for arm in ("off", "off2", "k3")
    }

    assert looping["off"] == looping["off2"] == looping["k3"]
    assert 0 < len(looping["off"]) < 12


def test_hand_written_text_is_not_repetitive() -> None:
    texts = [prompt.text for prompt in shipped_prompts(32)]

    assert [text[:40] for text in texts if is_repetitive(text.split())] == []
