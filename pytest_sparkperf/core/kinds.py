"""Kinds of values that a user may write, each with the words that say what is valid."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: ``says`` completes "is not ...", ``accepts`` decides."""

    says: str
    accepts: Callable[[Any], bool]


def is_whole(value: Any) -> bool:
    """Tell whether a value is an int; True and False are not numbers here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite int or float; True and False are not numbers here."""
    return is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def is_plain(value: Any) -> bool:
    """Tell whether a value can be written as JSON: no NaN, no infinity, no objects."""
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, Mapping):
        return is_plain_mapping(value)
    return value is None or isinstance(value, bool | str) or is_number(value)


def is_plain_mapping(value: Any) -> bool:
    """Tell whether a value is a mapping from texts to plain values."""
    return isinstance(value, Mapping) and all(isinstance(key, str) and is_plain(value[key]) for key in value)


def is_environment(value: Any) -> bool:
    """Tell whether a value maps environment variables to texts, numbers, booleans or None (unset)."""
    return isinstance(value, Mapping) and all(
        isinstance(key, str)
        and ENV_NAME.fullmatch(key)
        and (value[key] is None or is_environment_value(value[key]))
        for key in value
    )


def is_environment_value(value: Any) -> bool:
    """Tell whether a value can be that of an environment variable."""
    return (isinstance(value, str) and "\0" not in value) or isinstance(value, bool) or is_number(value)


def environment_text(value: str | bool | float) -> str:
    """Return the text of an environment variable; booleans become ``1`` and ``0``, which vLLM's own take."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def one_of(*words: str) -> Kind:
    """Return the kind of value that is one of a few words."""
    return Kind(
        f"one of {', '.join(map(repr, words))}", lambda value: isinstance(value, str) and value in words
    )


ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

TEXT = Kind("a text", lambda value: isinstance(value, str) and bool(value.strip()))
COUNT = Kind("a whole number above 0", lambda value: is_whole(value) and value > 0)
COUNT_OR_ZERO = Kind("a whole number of 0 or more", lambda value: is_whole(value) and value >= 0)
POSITIVE = Kind("a number above 0", lambda value: is_number(value) and value > 0)
SHARE = Kind("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
MAPPING = Kind("a dict of names to plain values", is_plain_mapping)


def did_you_mean(word: object, valid: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the closest valid word, or nothing."""
    close = difflib.get_close_matches(str(word), list(valid), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def shortened(text: str, limit: int = 60) -> str:
    """Cut a text that is shown in a message, so that the message stays one sentence."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
