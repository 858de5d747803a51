"""Random prompts of an exact length, on tokenizers that merge, and what is said where none can be had."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.random_words import one_token_words, random_text
from pytest_sparkperf.sim.tokenizer import split_pieces

WORDS = tuple(f"{first}{second}word" for first in "abcdefghijkl" for second in "mnopqrstuvwx")


def plain(text: str) -> int:
    return 9 + len(text.split())


def merging(text: str) -> int:
    """Count a word and a later one that begins alike as one token, whatever stands between a pair."""
    words = text.split()
    return 9 + len(words) - sum(a[0] == b[0] for a, b in pairwise(words))


def splitting(text: str) -> int:
    """Count words of one letter as three tokens."""
    return 9 + sum(3 if word.startswith("a") else 1 for word in text.split())


@pytest.mark.parametrize("count", [plain, merging, splitting])
@given(seed=st.integers(0, 10_000), tokens=st.integers(12, 2_000))
def test_a_text_has_exactly_the_tokens_asked_for(count: Callable[[str], int], seed: int, tokens: int) -> None:
    text = random_text(WORDS, tokens, count, random.Random(seed).randrange)

    assert count(text) == tokens
    assert set(text.split()) <= set(WORDS)


def test_the_same_numbers_draw_the_same_text_and_others_another() -> None:
    texts = [random_text(WORDS, 100, plain, random.Random(seed).randrange) for seed in (1, 1, 2)]

    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_length_below_the_template_says_the_least() -> None:
    with pytest.raises(ConfigError) as caught:
        random_text(WORDS, 9, plain, random.Random(1).randrange)

    assert str(caught.value) == (
        "prompt_tokens is 9, but one word and the chat template are 10 tokens: set prompt_tokens to 10 or "
        "more"
    )


def test_a_length_that_no_text_has_is_said_to_be_one() -> None:
    with pytest.raises(ServerError) as caught:
        random_text(WORDS, 100, lambda text: 2 * plain(text) + 1, random.Random(1).randrange)

    assert str(caught.value) == (
        "the server's tokenizer counts no random text as exactly 100 tokens: set prompt_tokens to another "
        "length, or leave dataset out"
    )


@pytest.mark.parametrize("space", ["\u0120", "\u2581", " "])
def test_words_are_taken_from_tokens_however_spaces_are_written(space: str) -> None:
    texts = [f"{space}{word}" for word in WORDS]

    found = one_token_words(
        [*texts, *texts, "inner", f"{space}1", f"{space}x", "<|im_end|>", f"{space}caf\u00e9"]
    )

    assert found == tuple(sorted(WORDS))


def test_too_few_words_are_not_drawn_from() -> None:
    with pytest.raises(ServerError) as caught:
        one_token_words([" one", " two", "three"])

    assert str(caught.value) == (
        "the server's tokenizer makes whole words of 2 tokens of the shipped prompts, and a random prompt is "
        "drawn from 100 or more; use another dataset, or leave dataset out"
    )


def test_the_shipped_prompts_hold_hundreds_of_words() -> None:
    pieces = [piece for prompt in shipped_prompts(16) for piece in split_pieces(prompt.text)]

    words = one_token_words(pieces)

    assert len(words) > 500
    assert all(re.fullmatch("[A-Za-z]+", word) for word in words)
