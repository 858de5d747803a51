"""The words of a ``vllm serve`` command that somebody else wrote: read, and changed option by option."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pytest_sparkperf.core.secrets import HIDDEN
from pytest_sparkperf.core.variant import SECRET_OPTIONS
from pytest_sparkperf.core.vllm_options import (
    DRAFT_TOKENS,
    SPECULATIVE,
    arguments,
    is_speculative,
    option_name,
    speculative_config,
)

_OPTION = re.compile(r"--[A-Za-z]|-[a-z]{1,3}(?:\Z|=)")
_OLD_ENTRY = "vllm.entrypoints.openai.api_server"


@dataclass(frozen=True, slots=True)
class Option:
    """One option as written: its one name, the words of it, the values among them."""

    name: str
    words: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServeWords:
    """A command split into what stands before the options (program and model) and the options."""

    head: tuple[str, ...]
    options: tuple[Option, ...]

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of an option where it is given last; empty where it is not given."""
        return next((one.values for one in reversed(self.options) if one.name == name), ())

    @property
    def words(self) -> tuple[str, ...]:
        """The whole command."""
        return (*self.head, *(word for option in self.options for word in option.words))

    @property
    def model(self) -> str | None:
        """The model it serves: ``vllm serve MODEL`` or ``--model MODEL``."""
        behind = self.head[self.head.index("serve") + 1 :] if "serve" in self.head else ()
        return next(iter((*behind, *self.values("model"))), None)

    @property
    def served_name(self) -> str | None:
        """The first name that requests may use for the model."""
        return next(iter(self.values("served-model-name")), None) or self.model

    @property
    def speculative(self) -> dict[str, Any]:
        """The speculative config as one mapping; raises ConfigError when it is no JSON mapping."""
        given = {one.name: one.values[0] for one in self.options if is_speculative(one.name) and one.values}
        config = speculative_config(given)
        return {key: int(value) if _is_count(key, value) else value for key, value in config.items()}


def read_serve_words(words: Sequence[str]) -> ServeWords:
    """Split a command at its options; a value is whatever follows one up to the next."""
    starts = [at for at, word in enumerate(words) if at and _OPTION.match(word)]
    # `python -m module` has an option that is not the server's.
    if tuple(words[1:3]) == ("-m", _OLD_ENTRY):
        starts = [at for at in starts if at > 1]
    head = tuple(words[: starts[0]]) if starts else tuple(words)
    return ServeWords(
        head, tuple(_option(words[start:end]) for start, end in pairwise([*starts, len(words)]))
    )


def is_vllm(words: Sequence[str]) -> bool:
    """Say whether a command runs vLLM's server."""
    if not words:
        return False
    program = words[0].rpartition("/")[2]
    return (program == "vllm" and "serve" in words[1:2]) or _OLD_ENTRY in words[1:4]


def changed(
    served: ServeWords, options: Mapping[str, Any], speculative: Mapping[str, Any] | None
) -> ServeWords:
    """Return the command with options replaced, added, or removed (None); so the speculative config.

    ``speculative`` None leaves it as it is, an empty one removes it.
    """
    kept = [
        one
        for one in served.options
        if one.name not in options and not (speculative is not None and is_speculative(one.name))
    ]
    added = dict(options) | ({SPECULATIVE: dict(speculative)} if speculative else {})
    new = read_serve_words(("", *arguments(added))).options
    return ServeWords(served.head, (*kept, *new))


def merged_speculation(
    own: Mapping[str, Any], wanted: Mapping[str, Any], k: int | None
) -> dict[str, Any] | None:
    """Return the speculative config for a k over a command's own: None leaves that, empty removes it."""
    if k == 0:
        return {}
    if k is None and not wanted:
        return None
    config = {**own, **wanted} | ({} if k is None else {DRAFT_TOKENS: k})
    return config if "method" in config or "model" in config else {"method": "mtp", **config}


def redacted(words: Sequence[str], secrets: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words with the values of secret options, and every text of ``secrets``, hidden."""
    hidden: list[str] = []
    inside = False
    for word in words:
        is_option = _OPTION.match(word) is not None
        name, equals, _ = word.partition("=")
        secret = is_option and option_name(name) in SECRET_OPTIONS
        shown = f"{name}={HIDDEN}" if secret and equals else HIDDEN if inside and not is_option else word
        inside = (secret and not equals) or (inside and not is_option)
        for text in secrets:
            shown = shown.replace(text, HIDDEN)
        hidden.append(shown)
    return tuple(hidden)


def _option(words: Sequence[str]) -> Option:
    name, equals, value = words[0].partition("=")
    values = ((value,) if equals else ()) + tuple(words[1:])
    named = option_name(name)
    # `--no-x` is the same option as `--x`, switched off.
    return Option(named.removeprefix("no-") if not values else named, tuple(words), values)


def _is_count(key: str, value: object) -> bool:
    return key == DRAFT_TOKENS and isinstance(value, str) and value.isdecimal()
