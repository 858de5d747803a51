"""A deterministic tokenizer: regex pieces with stable ids, about four characters a token for English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from zlib import crc32

VOCABULARY = 151_936  # as many ids as Qwen3's tokenizer has
# Ids below this one are control tokens; they never come out of plain text except by their own spelling.
_FIRST_TEXT_ID = 16
END_OF_TURN = "<|im_end|>"
START_OF_TURN = "<|im_start|>"
THINK = "<think>"
END_OF_THINKING = "</think>"
TOOL_CALL = "<tool_call>"
END_OF_TOOL_CALL = "</tool_call>"
CONTROL_IDS = {
    text: index
    for index, text in enumerate(
        (END_OF_TURN, START_OF_TURN, THINK, END_OF_THINKING, TOOL_CALL, END_OF_TOOL_CALL), start=1
    )
}
END_OF_TURN_ID = CONTROL_IDS[END_OF_TURN]

_CONTROL = re.compile("|".join(re.escape(text) for text in CONTROL_IDS))
# A word takes the space before it along, digits stand alone, whitespace before a word keeps its last space
# for that word: the cuts of the byte-pair tokenizers in use. A text joined from pieces is cut alike again.
_PIECES = re.compile(r" ?[^\W\d_]+|\d| ?[^\s\w]+| ?_+|\s*[\r\n]+|\s+(?!\S)|\s+")
_LONGEST_PIECE = 8


@lru_cache(maxsize=16_384)
def token_id(piece: str) -> int:
    """Return the id of one piece; the same in every process."""
    control = CONTROL_IDS.get(piece)
    if control is not None:
        return control
    return _FIRST_TEXT_ID + crc32(piece.encode()) % (VOCABULARY - _FIRST_TEXT_ID)


def split_pieces(text: str) -> list[str]:
    """Cut a text into its pieces; joined they are the text again."""
    return list(_iterate_pieces(text))


@lru_cache(maxsize=256)
def tokenize(text: str) -> tuple[int, ...]:
    """Return the token ids of a text; the prompts of a run come again and again."""
    return tuple(token_id(piece) for piece in _iterate_pieces(text))


def _iterate_pieces(text: str) -> Iterator[str]:
    at = 0
    for control in _CONTROL.finditer(text):
        yield from _plain_pieces(text[at : control.start()])
        yield control.group()
        at = control.end()
    yield from _plain_pieces(text[at:])


def _plain_pieces(text: str) -> Iterator[str]:
    for match in _PIECES.finditer(text):
        piece = match.group()
        for start in range(0, len(piece), _LONGEST_PIECE):
            yield piece[start : start + _LONGEST_PIECE]
