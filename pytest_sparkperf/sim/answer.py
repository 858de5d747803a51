"""The text a simulated model answers: a function of the prompt alone, whatever batch, clock and k are."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

from pytest_sparkperf.sim.tokenizer import (
    END_OF_THINKING,
    END_OF_TOOL_CALL,
    END_OF_TURN,
    TOOL_CALL,
    split_pieces,
    token_id,
)

Channel = Literal["reasoning", "content", "tool_name", "tool_arguments", "silent"]

# At most six letters each, so that a word and the space before it are one piece of the tokenizer.
_WORDS = """
about above across after again agent along always among answer arrive array batch before begin below
block branch bridge buffer build bytes cache carry chain change check class clear clock close cloud code
column common core corner count cover cross cycle data decode deep depth design detail digit direct draft
drive early edge engine enough entry equal error even event every exact expert fact fair fast field
figure first fixed flow focus form frame free fresh from full gate given global grain graph great group
half handle hash head heat held high hold idea image index inner input item join just keep kernel large
later layer lead learn least length level light limit line link list local long loop lower main many map
mark mask match matter memory merge method middle mind mode model more most move much name narrow near
need next node noise note number offset often once open order other outer output over page pair parse
part pass past path phase place plain plan point pool port power prefix prompt proof queue quick quiet
quote range rate read ready real record reduce region report rest result right ring round route rule
sample scale scan search second seed sense set shape share short show side signal simple single slice
small solid sort source space speed split stable stack stage start state step store stream string strong
table take target task tensor term test text thread time token tool total trace train tree true tuple
turn type under union unit until update upper usage value vector verify view wait walk wave weight well
when where while whole wide within word work write yield zero zone
""".split()  # noqa: SIM905 - quoted one by one the list would fill a page


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of an answer and where its text goes; ``silent`` tokens (control tokens) show no text."""

    token_id: int
    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call a request forces, with the arguments the model gives as JSON text."""

    name: str
    arguments: str


def prompt_digest(prompt_ids: Sequence[int], nonce: str = "") -> bytes:
    """Return what the answer hangs on: the prompt, and for sampled text the draw's own ``nonce``."""
    return blake2b(array("I", prompt_ids).tobytes(), digest_size=16, key=nonce.encode()[:64]).digest()


def draw(digest: bytes, label: str, position: int = 0) -> int:
    """Return a 64-bit number that is fixed by the digest, a label and a position."""
    text = f"{label}:{position}".encode()
    return int.from_bytes(blake2b(digest + text, digest_size=8).digest(), "big")


def uniform(digest: bytes, label: str, position: int) -> float:
    """Return a number in [0, 1) that is fixed by the digest, a label and a position."""
    return draw(digest, label, position) / 2.0**64


def invent_arguments(digest: bytes, schema: Mapping[str, object]) -> str:
    """Return arguments as JSON text for a function whose parameters have this JSON schema."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return "{}"
    arguments = {}
    for position, (name, described) in enumerate(properties.items()):
        kind = described.get("type") if isinstance(described, Mapping) else None
        arguments[name] = _invent_value(draw(digest, "argument", position), kind)
    return json.dumps(arguments)


def _invent_value(number: int, kind: object) -> object:
    if kind in ("integer", "number"):
        return number % 100
    if kind == "boolean":
        return number % 2 == 0
    if kind == "array":
        return []
    if kind == "object":
        return {}
    return _WORDS[number % len(_WORDS)].capitalize()


class Answer:
    """What follows one prompt, token by token, without an end: where it stops is the request's affair.

    ``natural_tokens`` counts up to and with the end-of-turn token, which the text reaches by itself; tokens
    behind it are what a request with ``ignore_eos`` gets to see.
    """

    def __init__(
        self, digest: bytes, *, thinking: bool, tool: ToolCall | None = None, min_tokens: int = 0
    ) -> None:
        self._digest = digest
        self.reasoning_tokens = 40 + draw(digest, "reasoning length") % 80 if thinking else 0
        self._head = self._make_head(tool)
        content = 0 if tool else 60 + draw(digest, "content length") % 400
        self.natural_tokens = max(len(self._head) + content + 1, min_tokens)

    def piece(self, position: int) -> Piece:
        """Return the token at a position, counted from 0."""
        if position < len(self._head):
            return self._head[position]
        if position == self.natural_tokens - 1:
            return Piece(token_id(END_OF_TURN), "silent", "")
        return _piece("content", self._word(position, start=len(self._head)))

    def _make_head(self, tool: ToolCall | None) -> tuple[Piece, ...]:
        """Return the part with a structure of its own: the reasoning, then a tool call if one is forced."""
        head = []
        if self.reasoning_tokens:
            words = (self._word(position, start=0) for position in range(self.reasoning_tokens - 1))
            head += [_piece("reasoning", word) for word in words]
            head += [_piece("reasoning", "\n"), Piece(token_id(END_OF_THINKING), "silent", "")]
            if tool is None:
                head.append(_piece("content", "\n\n"))
        if tool is not None:
            head.append(Piece(token_id(TOOL_CALL), "silent", ""))
            head.append(Piece(token_id(tool.name), "tool_name", tool.name))
            head += [_piece("tool_arguments", text) for text in split_pieces(tool.arguments)]
            head.append(Piece(token_id(END_OF_TOOL_CALL), "silent", ""))
        return tuple(head)

    def _word(self, position: int, *, start: int) -> str:
        """Return the piece of running text at a position; ``start`` is where this text begins."""
        if position > start and self._ends_phrase(position, start):
            return "." if draw(self._digest, "stop", position) % 2 else ","
        word = _WORDS[draw(self._digest, "word", position) % len(_WORDS)]
        if position == start:
            return word.capitalize()
        if self._ends_phrase(position - 1, start) and draw(self._digest, "stop", position - 1) % 2:
            word = word.capitalize()
        return f" {word}"

    def _ends_phrase(self, position: int, start: int) -> bool:
        """Return whether punctuation stands here: about every tenth piece, never twice in a row."""
        return position > start and self._wants_stop(position) and not self._wants_stop(position - 1)

    def _wants_stop(self, position: int) -> bool:
        return draw(self._digest, "phrase", position) % 9 == 0


@lru_cache(maxsize=4096)
def _piece(channel: Channel, text: str) -> Piece:
    return Piece(token_id(text), channel, text)
