"""Fills in the placeholders of a recipe's command, whichever of the two brace dialects it is written in.

spark-vllm-docker formats with ``str.format``: literal braces are doubled. sparkrun replaces ``{name}`` again
and again until nothing changes and leaves every other brace alone. The version a recipe names does not settle
it: doubled braces occur in files of version 2. What settles it is that JSON arguments must come out valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pytest_sparkperf.core.shell_words import ShellCommand, split_command

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_FORMAT_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")
# Defaults may name each other; more passes than this only a circle takes.
_PASSES = 10


def render(
    text: str, values: Mapping[str, str], *, doubled_first: bool
) -> tuple[ShellCommand, tuple[str, ...]]:
    """Return the command with its placeholders filled in, and the names that nothing gives a value.

    ``doubled_first`` says which dialect is tried first; the other one is taken where only that makes valid
    JSON of all the arguments that look like it.
    """
    known = resolved(values)
    if doubled_first:
        command = split_command(_formatted(text, known))
        if not any(map(_broken_json, command.words)):
            return command, _unknown(
                match[1] for match in _FORMAT_TOKEN.finditer(text) if match[1] not in known
            )
    command = split_command(_substituted(text, known))
    words = tuple(map(_halved_where_it_helps, command.words))
    # Braces within JSON are no placeholders.
    left = (name for word in words if not _looks_like_json(word) for name in _PLACEHOLDER.findall(word))
    return replace(command, words=words), _unknown(left)


def resolved(values: Mapping[str, str]) -> dict[str, str]:
    """Return values with the placeholders in them filled in by each other."""
    known = dict(values)
    for _ in range(_PASSES):
        filled = {name: _substituted(value, known) for name, value in known.items()}
        if filled == known:
            break
        known = filled
    return known


def _unknown(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in names if name}))


def _substituted(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _formatted(text: str, values: Mapping[str, str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        return values.get(match[1], match[0]) if match[1] else match[0][0]

    return _FORMAT_TOKEN.sub(replaced, text)


def _value_of(word: str) -> str:
    return word.partition("=")[2] if word.startswith("-") else word


def _looks_like_json(word: str) -> bool:
    return _value_of(word).startswith("{") and not _PLACEHOLDER.fullmatch(_value_of(word))


def _broken_json(word: str) -> bool:
    return _looks_like_json(word) and not _is_json(_value_of(word))


def _halved_where_it_helps(word: str) -> str:
    halved = word.replace("{{", "{").replace("}}", "}")
    return halved if _broken_json(word) and _is_json(_value_of(halved)) else word


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
