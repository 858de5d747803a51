"""Splits a shell command into words where no shell is needed to run it, and says where one is.

Recipes hold commands as people type them: continued lines, comments, ``export`` lines, assignments in front
of the program, JSON in quotes. All that is plain data. Whatever only a shell can do (variables, pipes,
several programs) is left to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pytest_sparkperf.core.errors import ConfigError

# Blanks behind the backslash that continues a line; the shell would take them for an argument.
_BROKEN_CONTINUATION = re.compile(r"\\[ \t\r]+(?=\n|\Z)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHELL_ONLY = "$`|&<>()"
_ESCAPABLE = '"\\$`'


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One program to run: its words, the variables set for it, and what of it ``needs_shell``.

    Where that is set, ``text`` is to be run, and ``words`` are those of the last program, good for a look.
    """

    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    needs_shell: str | None = None
    text: str = field(default="", compare=False)


@dataclass(slots=True)
class _Reader:
    text: str
    at: int = 0
    needs_shell: str | None = None
    commands: list[list[str]] = field(default_factory=lambda: [[]])

    def read(self) -> None:
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t\r":
                self.at += 1
            elif letter in "\n;":
                self._separate(1)
            elif self.text.startswith("&&", self.at):
                self._separate(2)
            elif letter == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                self.commands[-1].append("".join(self._word()))

    def _separate(self, length: int) -> None:
        self.at += length
        if self.commands[-1]:
            self.commands.append([])

    def _word(self) -> Iterator[str]:
        while self.at < len(self.text) and (letter := self.text[self.at]) not in " \t\r\n;":
            if letter == "'":
                yield self._until("'", self.at + 1)
            elif letter == '"':
                yield from self._double_quoted()
            elif letter == "\\":
                yield self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif self.text.startswith("&&", self.at):
                return
            else:
                self._note(letter)
                yield letter
                self.at += 1

    def _double_quoted(self) -> Iterator[str]:
        self.at += 1
        while (letter := self.text[self.at : self.at + 1]) != '"':
            if not letter:
                raise ConfigError("a double quote in the command is never closed; close it")
            if letter == "\\" and self.text[self.at + 1 : self.at + 2] in _ESCAPABLE:
                self.at += 1
                letter = self.text[self.at : self.at + 1]
            elif letter in "$`":
                self._note(letter)
            yield letter
            self.at += 1
        self.at += 1

    def _until(self, quote: str, start: int) -> str:
        end = self.text.find(quote, start)
        if end < 0:
            raise ConfigError("a single quote in the command is never closed; close it")
        self.at = end + 1
        return self.text[start:end]

    def _note(self, letter: str) -> None:
        if letter in _SHELL_ONLY and self.needs_shell is None:
            self.needs_shell = letter


def repaired(text: str) -> str:
    """Return a command with its continued lines joined, blanks behind a backslash or not."""
    joined = _BROKEN_CONTINUATION.sub(r"\\", text.rstrip())
    return joined.removesuffix("\\").replace("\\\n", " ")


def split_command(text: str) -> ShellCommand:
    """Split the text of a command; raises ConfigError for a quote that is never closed."""
    text = repaired(text)
    reader = _Reader(text)
    reader.read()
    env: list[tuple[str, str]] = []
    programs: list[list[str]] = []
    for words in reader.commands:
        exported = words[:1] == ["export"]
        rest = words[1:] if exported else words
        while rest and (match := _ASSIGNMENT.fullmatch(rest[0])):
            env.append((match[1], match[2]))
            rest = rest[1:]
        if rest[:1] == ["exec"]:
            rest = rest[1:]
        if rest:
            programs.append(rest)
    needs_shell = reader.needs_shell or ("several programs" if len(programs) > 1 else None)
    return ShellCommand(tuple(programs[-1]) if programs else (), tuple(env), needs_shell, text)
