"""Mappings that can be compared, hashed and kept in frozen dataclasses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


class FrozenMap(Mapping[str, Any]):
    """A mapping of plain values (what JSON can hold) that never changes.

    Two are equal when their JSON is: ``True`` differs from ``1`` and ``1`` from ``1.0``, because a command
    line shows the difference. Order is kept for printing and does not count for equality.
    """

    __slots__ = ("_items", "_json")

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items: dict[str, Any] = {key: _freeze(value) for key, value in (items or {}).items()}
        self._json = json.dumps(thaw(self), sort_keys=True)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._json == other._json
        return (
            bool(self._json == json.dumps(other, sort_keys=True))
            if isinstance(other, dict)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        return repr(thaw(self))


def thaw(value: Any) -> Any:
    """Return plain dicts and lists that ``json.dumps`` takes."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, list | tuple) else value


def compact_json(value: Any) -> str:
    """Return JSON without blanks, as one argument of a command line."""
    return json.dumps(thaw(value), separators=(",", ":"))


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return FrozenMap(value)
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


EMPTY = FrozenMap()
