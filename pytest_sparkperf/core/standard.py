"""Today's run against stored ones: which claims are judged, and what is said beside their verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.baseline import Record, baseline_from, flag_gap
from pytest_sparkperf.core.claim import Claim
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.design import claims_of
from pytest_sparkperf.core.fingerprint import difference_text, differences
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.judge import without_figures
from pytest_sparkperf.core.lookup import Action, Found, Problem, faster_note, margin_note
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.report import figure
from pytest_sparkperf.core.result import Outcome, Result, Verdict
from pytest_sparkperf.core.summary import Baseline

_ANCHOR = "anchor"


@dataclass(frozen=True, slots=True)
class Standard:
    """What one gate is judged by.

    ``claims``: those to sample, the ones about the first accepted runs included; ``baselines`` by gate.
    """

    claims: tuple[Claim, ...]
    baselines: Mapping[str, Baseline] = field(default_factory=lambda: MappingProxyType({}))


def baseline_claims(spec: GateSpec) -> list[Claim]:
    """Return the claims of a gate that stored runs decide."""
    return [claim for claim in claims_of(spec) if claim.kind == "baseline"]


def standard_of(spec: GateSpec, found: Found | None) -> Standard:
    """Return what a gate is judged by; without a baseline its other claims are all there is."""
    claims: list[Claim] = []
    baselines: dict[str, Baseline] = {}
    for claim in claims_of(spec):
        if claim.kind != "baseline":
            claims.append(claim)
        elif found is not None:
            claims.append(claim)
            baselines[claim.gate] = found.baselines[claim.metric]
            if claim.metric in found.anchors:
                claims.append(replace(claim, gate=_anchored(claim.gate)))
                baselines[claims[-1].gate] = found.anchors[claim.metric]
    return Standard(tuple(claims), baselines)


def unjudged(spec: GateSpec, problem: Problem, action: Action) -> tuple[Verdict, ...]:
    """Return the verdicts of the claims that had nothing to be judged by; none of them passes."""
    outcome: Outcome = "ERROR" if action == "ERROR" else "INCONCLUSIVE"
    return tuple(
        replace(without_figures(claim, outcome, problem.text), excused=action == "SKIP")
        for claim in baseline_claims(spec)
    )


def of_other_work(verdicts: Sequence[Verdict], found: Found, flags: Mapping[str, float]) -> list[Verdict]:
    """Turn verdicts against stored runs into errors where flagged requests show that the work differs."""
    gap = flag_gap(found.flags, flags)
    if gap is None:
        return list(verdicts)
    return [
        replace(verdict, outcome="ERROR", reason=gap) if _by_baseline(verdict) else verdict
        for verdict in verdicts
    ]


def beside(
    spec: GateSpec,
    found: Found,
    result: Result,
    facts: Mapping[str, Any],
    constants: Constants = ASSUMED,
) -> tuple[str, ...]:
    """Return what is said beside verdicts: both figures, the facts that differ, what the margin is worth.

    A run that is proven faster says so.
    """
    claims = baseline_claims(spec)
    lines = [_figures(claim.metric, getattr(result, claim.metric), found) for claim in claims]
    lines.append(difference_text(differences(found.facts, facts)))
    lows = {verdict.gate: verdict.low for verdict in result.verdicts if verdict.outcome == "PASS"}
    for claim in claims:
        own = constants.of(claim.metric)
        slowdown = 1 - claim.limit
        narrow = margin_note(claim.metric, slowdown, found.baselines[claim.metric], own)
        lines += [text for text in (narrow, faster_note(claim.metric, lows.get(claim.gate), own)) if text]
    return (*lines, *found.notes)


def _anchored(gate: str) -> str:
    return f"{gate[:-1]}, {_ANCHOR}]" if gate.endswith("]") else f"{gate}[{_ANCHOR}]"


def _by_baseline(verdict: Verdict) -> bool:
    return verdict.gate.startswith("max_slowdown")


def _figures(metric: str, today: float | None, found: Found) -> str:
    """Say today's figure beside the stored ones: the mean, how many there are, from when."""
    unit = METRICS[metric].unit
    now = "not measured" if today is None else figure(today, unit)
    text = f"{metric}: {now} today, {_stored(metric, found.series.recent, 'in the baseline')}"
    if metric in found.anchors:
        text += f", {_stored(metric, found.series.anchors, 'in the first accepted runs')}"
    return text


def _stored(metric: str, records: Sequence[Record], where: str) -> str:
    baseline = baseline_from(records, metric)
    assert baseline is not None  # chosen because it has some
    mean = math.exp(baseline.mean if METRICS[metric].higher_is_better else -baseline.mean)
    days = sorted(record.recorded_at[:10] for record in records)
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"{figure(mean, METRICS[metric].unit)} {where} (mean of {len(baseline.thetas)} records, {span})"
