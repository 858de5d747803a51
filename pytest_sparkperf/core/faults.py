"""What is wrong in a document, and where; the words for a value as the document shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.kinds import did_you_mean, shortened

KeyPath = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a document: where (keys from the root) and what, as a sentence about that place."""

    path: KeyPath
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.text}" if self.path else self.text


class DocumentError(ConfigError):
    """A document cannot be used; ``faults`` holds everything that is wrong with it, the text one a line."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


def unknown_keys(keys: Mapping[Any, Any], valid: Iterable[str]) -> Iterator[Fault]:
    """Yield a fault per key that is not valid, with the closest valid one and the list of all."""
    names = list(valid)
    for key in keys:
        if key not in names:
            near = did_you_mean(key, names)
            yield Fault((key,), f"is not a known key{near or ';'} valid keys are {', '.join(names)}")


def shown(value: Any) -> str:
    """Return a value as it looks in YAML, cut where it is long."""
    if value is None:
        return "an empty value"
    return str(value).lower() if isinstance(value, bool) else shortened(repr(value))
