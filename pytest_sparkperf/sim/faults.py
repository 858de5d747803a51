"""Faults a simulated server can be started with, so that what watches servers can be tested against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Faults:
    """Which faults are on; counts are of tokens of one answer unless the name says otherwise."""

    die_after: int | None = None
    error_after: int | None = None
    truncate_after: int | None = None
    hang_after: int | None = None
    hang_ready: bool = False
    exit_at_start: bool = False
    no_usage: bool = False
    wrong_usage: bool = False
    ignore_sigterm: bool = False
    http_503: bool = False
    lumps: bool = False


# Name -> what it does; those named _after take a value.
FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "die_after": "the process exits in the middle of the N-th generation request",
        "error_after": "an error object and [DONE] follow after N tokens",
        "truncate_after": "the connection closes after N tokens, before the answer is complete",
        "hang_after": "nothing follows after N tokens and the connection stays open",
        "hang_ready": "/health answers but a generation never does",
        "exit_at_start": "the process prints a failed start and exits with 1",
        "no_usage": "usage is never sent",
        "wrong_usage": "usage reports twice the tokens that were sent",
        "ignore_sigterm": "SIGTERM does nothing",
        "http_503": "generation endpoints answer 503",
        "lumps": "all chunks of an answer arrive together at its end",
    }
)


def parse_faults(texts: Iterable[str]) -> Faults:
    """Return the faults of repeated ``--fault NAME[=VALUE]``; raise ConfigError on one that is not known."""
    on: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if name not in FAULTS:
            raise ConfigError(f"--fault {text!r}: no such fault. Valid faults: {', '.join(FAULTS)}.")
        if name.endswith("_after"):
            on[name] = _count(text, name, value)
        elif separator:
            raise ConfigError(f"--fault {text!r}: {name} takes no value. Write --fault {name}.")
        else:
            on[name] = True
    return Faults(**on)


def _count(text: str, name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ConfigError(
            f"--fault {text!r}: {name} needs a whole number of at least 1. Write for example "
            f"--fault {name}=5."
        )
    return int(value)
