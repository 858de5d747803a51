"""Writes a text that a regular expression matches, for the small part of the language that answers need.

Known are literals, escapes, classes, groups, alternatives and the quantifiers ``? * + {m} {m,} {m,n}``. An
expression that holds more is refused, never answered wrongly: the text is held against it in the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CLASSES = {"d": _DIGITS, "w": _LETTERS + _DIGITS, "s": " ", "n": "\n", "t": "\t"}
_MORE = 3  # repetitions beyond the least where there is no limit


class PatternError(ValueError):
    """An expression that is not one, or that needs more than this module knows."""


def matching_text(pattern: str, number: Callable[[], int]) -> str:
    """Return a text that the whole pattern matches; ``number`` draws what is left open."""
    try:
        text = _Writer(pattern, number).write()
        matches = re.fullmatch(pattern, text) is not None
    except re.error as error:
        raise PatternError(str(error)) from None
    if not matches:
        raise PatternError(f"wrote {text!r}, which does not match")
    return text


class _Writer:
    """Reads a pattern from left to right and writes as it goes."""

    def __init__(self, pattern: str, number: Callable[[], int]) -> None:
        self._pattern = pattern
        self._number = number
        self._at = 0

    def write(self) -> str:
        text = self._alternatives()()
        if self._at < len(self._pattern):
            raise PatternError(f"a {self._pattern[self._at]!r} stands alone")
        return text

    def _alternatives(self) -> Callable[[], str]:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return lambda: options[self._number() % len(options)]()

    def _sequence(self) -> Callable[[], str]:
        parts: list[Callable[[], str]] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return lambda: "".join(part() for part in parts)

    def _repeated(self, atom: Callable[[], str]) -> Callable[[], str]:
        bounds = {"?": (0, 1), "*": (0, _MORE), "+": (1, 1 + _MORE)}.get(self._peek())
        if bounds is not None:
            self._at += 1
        elif found := re.compile(r"\{(\d+)(,(\d*))?\}").match(self._pattern, self._at):
            least, comma, most = int(found[1]), found[2], found[3]
            bounds = (least, int(most) if most else least + _MORE if comma else least)
            self._at = found.end()
        else:
            return atom
        low, high = bounds
        return lambda: "".join(atom() for _ in range(low + self._number() % (high - low + 1)))

    def _atom(self) -> Callable[[], str]:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._one_of(self._class())
        if char == "\\":
            return self._one_of(self._escape())
        if char == ".":
            return self._one_of(_LETTERS)
        if char in "^$":
            return lambda: ""
        if char in "*+?":
            raise PatternError(f"a {char!r} repeats nothing")
        return lambda: char

    def _group(self) -> Callable[[], str]:
        if self._pattern.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise PatternError("groups that begin with (? are not known")
        inner = self._alternatives()
        if self._take() != ")":
            raise PatternError("a group is not closed")
        return inner

    def _class(self) -> str:
        if self._peek() == "^":
            raise PatternError("classes of what must not stand are not known")
        chars = ""
        while (char := self._take()) != "]":
            if char == "\\":
                chars += self._escape()
            elif self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                chars += "".join(map(chr, range(ord(char), ord(self._take()) + 1)))
            else:
                chars += char
        return chars

    def _escape(self) -> str:
        char = self._take()
        if char.isalnum() and char not in _CLASSES:
            raise PatternError(f"the escape \\{char} is not known")
        return _CLASSES.get(char, char)

    def _one_of(self, chars: str) -> Callable[[], str]:
        if not chars:
            raise PatternError("a class holds nothing")
        return lambda: chars[self._number() % len(chars)]

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("it ends too early")
        self._at += 1
        return char
