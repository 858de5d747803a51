"""Puts tool calls together from the fragments of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Call:
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)


class ToolCallAssembler:
    """Collects the ``tool_calls`` deltas of one answer by their index."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}

    def add(self, deltas: Iterable[Mapping[str, Any]]) -> None:
        """Take the deltas of one chunk; a name or id that is sent again is not appended to itself."""
        for position, delta in enumerate(deltas):
            index = delta.get("index")
            call = self._calls.setdefault(index if isinstance(index, int) else position, _Call())
            function = delta.get("function")
            function = function if isinstance(function, dict) else {}
            call.id = call.id or _text(delta.get("id")) or None
            call.name = call.name or _text(function.get("name")) or None
            call.arguments.append(_text(function.get("arguments")))

    def assembled(self) -> tuple[Mapping[str, Any], ...]:
        """Return the calls in order of their index, shaped as in an answer that is not streamed.

        ``arguments`` stays the string the model wrote; cut off by a length limit it is no valid JSON.
        """
        return tuple(
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for _, call in sorted(self._calls.items())
        )


def has_substance(delta: Mapping[str, Any]) -> bool:
    """Tell whether a tool-call delta carries anything of the model's, not just its index."""
    function = delta.get("function")
    function = function if isinstance(function, dict) else {}
    return bool(delta.get("id") or function.get("name") or function.get("arguments"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
