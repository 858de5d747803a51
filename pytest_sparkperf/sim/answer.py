"""The text a simulated model answers: a function of the prompt alone, whatever batch, clock and k are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from pytest_sparkperf.sim.tokenizer import (
    END_OF_THINKING,
    END_OF_TOOL_CALL,
    END_OF_TURN,
    TOOL_CALL,
    split_pieces,
    token_id,
)
from pytest_sparkperf.sim.twist import STRAIGHT, Twist
from pytest_sparkperf.sim.words import WORDS, draw, forked, word

Channel = Literal["reasoning", "content", "tool_name", "tool_arguments", "silent"]
# A text that repeats itself says so many words over and over.
_LOOP_WORDS = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of an answer and where its text goes; ``call`` is the index of the tool call it belongs to.

    ``silent`` tokens (control tokens) show no text; ``token`` is how the token itself is spelled.
    """

    token_id: int
    channel: Channel
    text: str
    token: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the answer makes, with the arguments the model gives as JSON text."""

    name: str
    arguments: str


class Answer:
    """What follows one prompt, token by token, without an end: where it stops is the request's affair.

    It thinks if told to, then makes its ``calls``, or says its ``document``, or else talks.
    ``natural_tokens`` counts up to and with the end-of-turn token, which the text reaches by itself; tokens
    behind it are what a request with ``ignore_eos`` gets to see.
    """

    def __init__(
        self,
        digest: bytes,
        *,
        thinking: bool,
        calls: Sequence[ToolCall] = (),
        document: str | None = None,
        min_tokens: int = 0,
        twist: Twist = STRAIGHT,
    ) -> None:
        self.digest = digest
        self._fork_digest = forked(digest, twist.fork_label)
        self._twist = twist
        self._head: tuple[Piece, ...] = ()  # while the reasoning is being made there is no content yet
        self.reasoning_tokens = 40 + draw(digest, "reasoning length") % 80 if thinking else 0
        self._head = self._make_head(calls, document)
        talks = not calls and document is None
        content = 60 + draw(digest, "content length") % 400 if talks else 0
        if talks and twist.end_at is not None:
            content = max(0, twist.end_at - len(self._head))
        self.natural_tokens = max(len(self._head) + content + 1, min_tokens)

    def piece(self, position: int) -> Piece:
        """Return the token at a position, counted from 0."""
        if position < len(self._head):
            return self._head[position]
        if position == self.natural_tokens - 1:
            return _silent(END_OF_TURN)
        return _piece("content", self._word(position))

    def rivals(self, position: int) -> Iterator[str]:
        """Yield the tokens that come next in the model's opinion at a position, best first, without end."""
        chosen, number = self.piece(position).token, 0
        seen = {chosen}
        if position == self._twist.fork_at and self._is_talk(position):
            seen.add(straight := self._straight_word(position))
            if straight != chosen:
                yield straight
        while True:
            rival = self._rival(position, number)
            if rival not in seen:
                seen.add(rival)
                yield rival
            number += 1

    def is_tie(self, position: int) -> bool:
        """Tell whether the model all but takes another token at a position of its running text."""
        return self._ties(position) and self._is_talk(position)

    def _make_head(self, calls: Sequence[ToolCall], document: str | None) -> tuple[Piece, ...]:
        """Return the part with a structure of its own: the reasoning, then calls or a document."""
        head: list[Piece] = []
        if self.reasoning_tokens:
            words = (self._word(position) for position in range(self.reasoning_tokens - 1))
            head += [_piece("reasoning", text) for text in words]
            head += [_piece("reasoning", "\n"), _silent(END_OF_THINKING)]
            if not calls and document is None:
                head.append(_piece("content", "\n\n"))
        for index, call in enumerate(calls):
            head += _call_pieces(call, index, leak=self._twist.leak)
        if document is not None:
            head += [_piece("content", text) for text in split_pieces(document)]
        return tuple(head)

    def _is_talk(self, position: int) -> bool:
        """Tell whether running text stands at a position, rather than structure or the end."""
        if position < self.reasoning_tokens - 1:
            return True
        return position >= len(self._head) and position != self.natural_tokens - 1

    def _word(self, position: int) -> str:
        """Return the piece of running text at a position, with the twist that is on."""
        twist = self._twist
        if twist.repeat_at is not None and position >= twist.repeat_at:
            text = word(self.digest, "loop", (position - twist.repeat_at) % _LOOP_WORDS)
            return text if self._starts_text(position) else f" {text}"
        if position == twist.fork_at:
            straight = self._straight_word(position)
            # At a tie it is the very token that the model all but took.
            first = 0 if self._ties(position) else draw(self._fork_digest, "fork") % len(WORDS)
            rivals = (self._rival(position, first + number) for number in range(len(WORDS)))
            return next(rival for rival in rivals if rival != straight)
        behind = twist.fork_at is not None and position > twist.fork_at
        return self._draw_word(position, self._fork_digest if behind else self.digest)

    def _ties(self, position: int) -> bool:
        return position == self._twist.tie_at

    def _straight_word(self, position: int) -> str:
        return self._draw_word(position, self.digest)

    def _rival(self, position: int, number: int) -> str:
        text = word(self.digest, f"rival {number}", position)
        return text.capitalize() if self._starts_text(position) else f" {text}"

    def _draw_word(self, position: int, digest: bytes) -> str:
        if self._ends_phrase(position, digest):
            return "." if draw(digest, "stop", position) % 2 else ","
        text = word(digest, "word", position)
        if self._starts_text(position):
            return text.capitalize()
        if self._ends_phrase(position - 1, digest) and draw(digest, "stop", position - 1) % 2:
            text = text.capitalize()
        return f" {text}"

    def _starts_text(self, position: int) -> bool:
        return position in (0, len(self._head))

    def _ends_phrase(self, position: int, digest: bytes) -> bool:
        """Return whether punctuation stands here: about every tenth piece, never twice in a row."""
        return (
            not self._starts_text(position)
            and _wants_stop(position, digest)
            and not _wants_stop(position - 1, digest)
        )


def _wants_stop(position: int, digest: bytes) -> bool:
    return draw(digest, "phrase", position) % 9 == 0


def _call_pieces(call: ToolCall, index: int, *, leak: bool) -> list[Piece]:
    """Return the tokens of a call; as a leak the same ones, but sent as content."""
    pieces = [_silent(TOOL_CALL), _piece("tool_name", call.name)]
    pieces += [_piece("tool_arguments", text) for text in split_pieces(call.arguments)]
    pieces.append(_silent(END_OF_TOOL_CALL))
    if leak:
        return [replace(piece, channel="content", text=piece.token) for piece in pieces]
    return [replace(piece, call=index) for piece in pieces]


@lru_cache(maxsize=4096)
def _piece(channel: Channel, text: str) -> Piece:
    return Piece(token_id(text), channel, text, text)


@lru_cache(maxsize=16)
def _silent(control: str) -> Piece:
    return Piece(token_id(control), "silent", "", control)
