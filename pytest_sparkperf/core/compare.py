"""What an A/B says besides its verdicts: the ratio, where it comes from, whether anything differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_sparkperf.core.flags import different_work
from pytest_sparkperf.core.keywords import COMPARISONS
from pytest_sparkperf.core.result import Result, Verdict

# Facts that name a server rather than describe it.
_NAMES = frozenset({"name", "url", "port", "pid", "log"})


def explain(result: Result, log_ratio: float | None) -> Result:
    """Return a result with the ratio B/A and notes on it; ``result.against`` is A.

    Servers that did different work are not compared: then there is no ratio, and comparisons are an ERROR.
    """
    against = result.against
    assert against is not None
    names = (f"B ({result.server.get('name')})", f"A ({against.server.get('name')})")
    if (unlike := different_work(names, result.flags, against.flags)) is not None:
        result, log_ratio = replace(result, verdicts=_not_comparable(result.verdicts, unlike)), None
    notes = [
        text
        for text in (_nothing_differs(result.server, against.server), _draft_or_step(result, against))
        if text is not None
    ]
    return replace(
        result, ratio=None if log_ratio is None else math.exp(log_ratio), notes=(*result.notes, *notes)
    )


def _not_comparable(verdicts: Sequence[Verdict], reason: str) -> tuple[Verdict, ...]:
    """Turn comparisons into ERROR; where nothing is compared but by eye, add one."""
    compared = [verdict for verdict in verdicts if verdict.gate.partition("[")[0] in COMPARISONS]
    if not compared:
        return (*verdicts, Verdict("comparison", "ERROR", None, None, None, None, None, reason))
    return tuple(
        Verdict(one.gate, "ERROR", None, None, None, one.limit, None, reason, one.rounds)
        if one in compared
        else one
        for one in verdicts
    )


def _nothing_differs(b: Mapping[str, Any], a: Mapping[str, Any]) -> str | None:
    if {key: value for key, value in b.items() if key not in _NAMES} == {
        key: value for key, value in a.items() if key not in _NAMES
    }:
        return "A and B report identical facts: the change did nothing that the server tells of"
    return None


def _draft_or_step(b: Result, a: Result) -> str | None:
    """Say what changed: decode rate = tokens per step / step time."""
    steps = [_step(result) for result in (b, a)]
    if steps[0] is None or steps[1] is None:
        return None
    (b_tokens, b_ms), (a_tokens, a_ms) = steps[0], steps[1]
    return (
        f"tokens per step {a_tokens:.2f} -> {b_tokens:.2f} ({b_tokens / a_tokens - 1:+.1%}), "
        f"step {a_ms:.2f} -> {b_ms:.2f} ms ({b_ms / a_ms - 1:+.1%})"
    )


def _step(result: Result) -> tuple[float, float] | None:
    """Return tokens per step and the step's time in ms; without speculative decoding a step is one token."""
    if result.tpot_ms is None:
        return None
    if result.server.get("k") == 0:
        return 1.0, result.tpot_ms
    if result.acceptance_length is None:
        return None
    return result.acceptance_length, result.acceptance_length * result.tpot_ms
