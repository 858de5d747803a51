from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.sim.tokenizer import (
    CONTROL_IDS,
    END_OF_TURN,
    VOCABULARY,
    split_pieces,
    token_id,
    tokenize,
)

ENGLISH = (
    "The town lay in a bend of the river, and every morning the fog came up from the water and stood between "
    "the houses until the sun was high enough to lift it. People said that you could tell a stranger by the "
    "way he walked in it: those who had been born there kept close to the walls and never hurried, while the "
    "others went straight down the middle of the street with their hands held out in front of them."
)


@given(st.text())
def test_pieces_joined_are_the_text(text: str) -> None:
    assert "".join(split_pieces(text)) == text


@given(st.text())
def test_every_piece_has_an_id_within_the_vocabulary(text: str) -> None:
    assert all(0 < token < VOCABULARY for token in tokenize(text))


def test_english_counts_about_four_characters_a_token() -> None:
    assert 3.7 < len(ENGLISH) / len(tokenize(ENGLISH)) < 4.7


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Tell me, please.", ["Tell", " me", ",", " please", "."]),
        ("x = 12", ["x", " =", " ", "1", "2"]),
        ("a\n\nThe end", ["a", "\n\n", "The", " end"]),
        ("  indent", [" ", " indent"]),
        ("incomprehensible", ["incompre", "hensible"]),
        (f"end{END_OF_TURN}", ["end", END_OF_TURN]),
    ],
)
def test_text_is_cut_into(text: str, pieces: list[str]) -> None:
    assert split_pieces(text) == pieces


def test_control_tokens_have_ids_that_no_word_has() -> None:
    assert tokenize(END_OF_TURN) == (CONTROL_IDS[END_OF_TURN],)
    assert token_id("word") > max(CONTROL_IDS.values())


def test_ids_hang_on_the_spelling_alone() -> None:
    # crc32 of the piece, so the same in every process and version; recordings with token ids stay valid.
    assert tokenize("one more time") == (126321, 42425, 150528)
