"""Joins the passes of a measurement into one Result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pytest_sparkperf.core.acceptance import Acceptance, acceptance_figures
from pytest_sparkperf.core.flags import count_flags
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.result import RequestResult, Result, TpotRule, Verdict

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One arm of a measurement, as the rounds left it.

    ``cells`` holds the figures of every burst of every round; ``requests`` the requests of the rounds and
    ``spoiled`` the attempts, in warm-up too, that were not valid; ``attempts`` and ``faults`` count first
    attempts and those that the server spoiled; ``end_ids`` are the tokens that end an answer.
    """

    cells: Sequence[Figures]
    requests: Sequence[RequestResult]
    spoiled: Sequence[RequestResult]
    attempts: int
    faults: int
    rounds: int
    rule: TpotRule | None
    acceptance: Acceptance | None
    end_ids: frozenset[int] | None = None


def collect(measured: Measured, verdicts: Sequence[Verdict], server: Mapping[str, Any]) -> Result:
    """Return the Result: each metric is the geometric mean over the bursts of all rounds."""
    acceptance = measured.acceptance
    figures: dict[str, Any] = {
        name: _over_cells([cell.get(name) for cell in measured.cells]) for name in METRICS
    }
    figures["goodput_rps"] = _mean([cell.get("goodput_rps") for cell in measured.cells])
    figures |= {
        **acceptance_figures(acceptance),
        "step_ms": _step_ms(measured),
        "error_rate": measured.faults / measured.attempts if measured.attempts else None,
    }
    invalid: dict[str, int] = {}
    for request in (*measured.spoiled, *measured.requests):
        if not request.valid and request.reason is not None:
            invalid[request.reason] = invalid.get(request.reason, 0) + 1
    return Result(
        **figures,
        acceptance_per_position=acceptance.per_position if acceptance else None,
        drafts=acceptance.drafts if acceptance else None,
        wasted_tokens=acceptance.wasted_tokens if acceptance else None,
        requests=(*measured.requests, *measured.spoiled),
        invalid=invalid,
        flags=count_flags([one for one in measured.requests if one.valid], measured.end_ids),
        rounds=measured.rounds,
        verdicts=tuple(verdicts),
        server=server,
        simulated=bool(server.get("simulated")),
        tpot_rule=measured.rule,
    )


def _over_cells(values: Sequence[float | None]) -> float | None:
    """Mean on the log scale, on which everything is judged; one missing burst makes the metric missing."""
    known = [value for value in values if value is not None and value > 0]
    if not values or len(known) < len(values):
        return None
    return math.exp(fmean(map(math.log, known)))


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of figures that may be 0; one missing burst makes the metric missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _step_ms(measured: Measured) -> float | None:
    """Decode time of all streams / drafts: with one stream, what one step of the engine takes."""
    drafts = measured.acceptance.drafts if measured.acceptance else None
    spans = [
        request.last_event_s - request.first_event_s
        for request in measured.requests
        if request.valid and request.last_event_s is not None and request.first_event_s is not None
    ]
    return 1000 * sum(spans) / drafts if drafts and spans else None
