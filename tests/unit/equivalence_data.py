"""Answers for the tests of output equivalence, and the recorded ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_sparkperf.core.equivalence import Generation
from pytest_sparkperf.core.logprobs import Choice
from pytest_sparkperf.core.result import RequestResult

DATA = Path(__file__).parent.parent / "data" / "equivalence"


def case(name: str) -> Any:
    """Return the case whose file begins with this name."""
    (path,) = (DATA / "cases").glob(f"{name}_*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def h200(arm: str) -> dict[str, Any]:
    """Return what the H200 answered: arm ``off``, ``off2`` or ``k3``."""
    found: dict[str, Any] = json.loads((DATA / "h200.json").read_text(encoding="utf-8"))[arm]
    return found


def calls(*pairs: tuple[str, str]) -> tuple[Mapping[str, Any], ...]:
    """Return tool calls of (name, arguments) as an answer holds them."""
    return tuple(
        {"id": f"call-{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(pairs)
    )


def answer(text: str | None = "", **fields: Any) -> RequestResult:
    """Return a valid answer; ``tool_calls`` may be the pairs of a case's file."""
    told = fields.pop("tool_calls", ())
    if told and "function" not in told[0]:
        told = calls(*((call["name"], call["arguments"]) for call in told))
    return RequestResult(valid=True, text=text or "", tool_calls=told, **fields)


def generation(
    ids: Iterable[int] | None = None, choices: Mapping[int, Choice] | None = None, **fields: Any
) -> Generation:
    """Return an answer to compare, by its token ids."""
    token_ids = None if ids is None else tuple(ids)
    return Generation(answer(fields.pop("text", ""), token_ids=token_ids, **fields), choices or {})
