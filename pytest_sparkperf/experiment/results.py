"""From what sides recorded to one arm of a Result, and to the verdicts that are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_sparkperf.core.acceptance import pool
from pytest_sparkperf.core.collect import Measured, collect
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.proportion import judge_error_rate
from pytest_sparkperf.core.result import Outcome, Result, TpotRule, Verdict
from pytest_sparkperf.experiment.side import Side


@dataclass(frozen=True, slots=True)
class Part:
    """What one start of a server contributes to an arm: its side, and the passes of it that became rounds."""

    side: Side
    rounds: tuple[int, ...]


def arm_result(parts: Sequence[Part], rule: TpotRule | None, verdicts: Sequence[Verdict]) -> Result:
    """Return the figures of one arm, over all starts of its server; facts and notes are the last one's.

    An arm that was never started has no figures.
    """
    if not parts:
        return Result(verdicts=tuple(verdicts))
    records = [record for part in parts for record in part.side.kept(part.rounds)]
    kept = [burst for record in records for burst in record.bursts.values()]
    everything = [burst for part in parts for burst in part.side.everything()]
    spoiled = [request for burst in everything for request in (*burst.spoiled, *burst.requests)]
    measured = Measured(
        cells=[record.figures(cell, rule or "n_minus_1") for record in records for cell in record.bursts],
        requests=[request for burst in kept for request in burst.requests],
        spoiled=[request for request in spoiled if not request.valid],
        attempts=sum(len(burst.attempts) for burst in everything),
        faults=sum(burst.server_faults for burst in everything),
        rounds=sum(len(part.rounds) for part in parts),
        rule=rule,
        end_ids=parts[-1].side.end_ids,
        acceptance=pool([part.side.acceptance(part.rounds) for part in parts]),
    )
    last = parts[-1].side
    return replace(collect(measured, verdicts, last.facts()), notes=last.notes())


def counted_verdicts(sides: Sequence[Side], spec: GateSpec) -> list[Verdict]:
    """Return the verdict on the error rate, where one is asked for or a server failed a request."""
    everything = [burst for side in sides for burst in side.everything()]
    faults = sum(burst.server_faults for burst in everything)
    if not faults and not any(limit.metric == "error_rate" for limit in spec.limits):
        return []
    attempts = sum(len(burst.attempts) for burst in everything)
    return [judge_error_rate(faults, attempts, spec.max_error_rate)]


def unmeasured(outcome: Outcome, reason: str) -> Verdict:
    """Return the verdict of a mark without limits that could not be measured."""
    return Verdict("measurement", outcome, None, None, None, None, None, reason)
