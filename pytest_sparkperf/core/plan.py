"""What a suite will cost and what it can decide, before anything runs: starts, minutes, forecasts.

Minutes are rough: they follow from stated rates, not from the server. Per-stream rates of a burst fall with
its size about as the power 0.4, as published sweeps over 1 to 32 streams do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pytest_sparkperf.core.claim import Claim
from pytest_sparkperf.core.constants import ASSUMED, LOOKS, Constants
from pytest_sparkperf.core.design import claims_of, plan_of
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.judge import Terms, forecast
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.longrun import segment_count, steady_requests
from pytest_sparkperf.core.order import Arm, looks_for
from pytest_sparkperf.core.order_of_starts import count_starts
from pytest_sparkperf.core.quantile import requests_needed
from pytest_sparkperf.core.residents import takes_room
from pytest_sparkperf.core.summary import Baseline
from pytest_sparkperf.core.targets import MAX_RESIDENT
from pytest_sparkperf.core.variant import Variant

_FALL = 0.4
# The shipped prompts.
_PROMPT_TOKENS = 1000
_SIMULATED_START_S = 2.0
_BY_RUNS = "depends on the spread of stored runs"
_NO_RUNS = "none is known: record some, or name the machine by --key"


@dataclass(frozen=True, slots=True)
class Rates:
    """What minutes are reckoned from: one stream's rates and the time of a start."""

    decode_tok_s: float = 70.0
    prefill_tok_s: float = 4000.0
    start_s: float = 180.0


@dataclass(frozen=True, slots=True)
class CollectedGate:
    """One gate of a suite; ``baselines`` by metric, where some are stored, and the slug of their machine.

    ``problem`` says why what is stored there is no baseline.
    """

    test: str
    spec: GateSpec
    variants: Mapping[Arm, Variant]
    baselines: Mapping[str, Baseline] | None = None
    machine: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedLimit:
    """One limit and what it can decide; below ``low`` and above ``high`` it does in 90 % of the runs."""

    gate: str
    limit: float
    forecast: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedGate:
    """What one gate will do; minutes without starts and soak, the fewest where the first look decides."""

    test: str
    servers: tuple[str, ...]
    rounds: tuple[int, int]
    requests_per_round: int
    minutes: tuple[float, float]
    limits: tuple[PlannedLimit, ...]


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """A whole suite: its gates, the starts of servers, and minutes with the starts."""

    gates: tuple[PlannedGate, ...]
    starts: int
    minutes: tuple[float, float]
    rates: Rates
    constants: str


def plan_suite(
    gates: Sequence[CollectedGate],
    *,
    rates: Rates | None = None,
    constants: Constants = ASSUMED,
    max_resident: int = MAX_RESIDENT,
) -> SuitePlan:
    """Plan the gates of a session in the order in which they will run."""
    rates = rates or Rates()
    count = max(1, sum(len(claims_of(gate.spec)) for gate in gates))
    planned = tuple(_gate(gate, rates, constants, count) for gate in gates)
    needs = [
        frozenset(variant for variant in gate.variants.values() if takes_room(variant)) for gate in gates
    ]
    starts = count_starts([need for need in needs if need], max_resident=max_resident)
    real = any(variant.launch != "sim" for need in needs for variant in need)
    start_minutes = starts * (rates.start_s if real else _SIMULATED_START_S) / 60
    fewest, most = (sum(gate.minutes[end] for gate in planned) + start_minutes for end in (0, 1))
    return SuitePlan(planned, starts, (fewest, most), rates, constants.source)


def plan_lines(plan: SuitePlan) -> list[str]:
    """Say a plan as a table of gates with their limits below, and the totals."""
    lines: list[str] = []
    for gate in plan.gates:
        lines.append(gate.test)
        lines.append(
            f"  {' against '.join(gate.servers)}; {_range(*gate.rounds)} rounds x {gate.requests_per_round} "
            f"requests, {_minutes(gate.minutes)}"
        )
        lines += [f"  {limit.gate}={limit.limit:g}: {limit.forecast}" for limit in gate.limits]
        if not gate.limits:
            lines.append("  no limits: measures and reports")
    noun = "gate" if len(plan.gates) == 1 else "gates"
    lines.append(
        f"{len(plan.gates)} {noun}, {plan.starts} starts of servers, {_minutes(plan.minutes)} with starts, "
        "without soak"
    )
    lines.append(
        f"minutes at {plan.rates.decode_tok_s:g} tok/s of one stream, {plan.rates.prefill_tok_s:g} tok/s of "
        f"prefill, {plan.rates.start_s:g} s a start; forecasts from {plan.constants} constants"
    )
    return lines


def as_document(plan: SuitePlan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return asdict(plan)


def _gate(gate: CollectedGate, rates: Rates, constants: Constants, count: int) -> PlannedGate:
    spec = gate.spec
    plan = plan_of(spec)
    per_round = (plan.requests_per_pass or len(plan.prompts)) * len(gate.variants)
    claims = claims_of(spec)
    least = min(LOOKS[0], spec.max_rounds)
    # The last warm-up pass is the first round.
    passes = (plan.min_passes - 1 + least, plan.min_passes - 1 + spec.max_rounds)
    pass_s = _burst_s(spec.load.burst, rates) * len(plan.prompts) * len(gate.variants)
    fewest, most = (min(number * pass_s, max(spec.budget_s, pass_s)) / 60 for number in passes)
    if spec.load.is_run:
        return _run(gate, rates, pass_s * plan.min_passes, tuple(_limits(gate, claims, constants, count)))
    return PlannedGate(
        test=gate.test,
        servers=tuple(gate.variants[arm].describe() for arm in sorted(gate.variants, reverse=True)),
        rounds=(least, spec.max_rounds),
        requests_per_round=per_round,
        minutes=(fewest, most),
        limits=tuple(_limits(gate, claims, constants, count)),
    )


def _run(
    gate: CollectedGate, rates: Rates, warm_up_s: float, limits: tuple[PlannedLimit, ...]
) -> PlannedGate:
    """Plan a run of many requests, which has as many segments as fit, and ends with its last request."""
    load = gate.spec.load
    requests = load.requests or 0
    if load.request_rate is not None:
        run_s = requests / load.request_rate
    else:
        run_s = requests / load.concurrency * _burst_s(load, rates)
    segments = segment_count(load, steady_requests(load))
    minutes = min(warm_up_s + run_s, gate.spec.budget_s) / 60
    return PlannedGate(
        test=gate.test,
        servers=tuple(variant.describe() for variant in gate.variants.values()),
        rounds=(segments, segments),
        requests_per_round=steady_requests(load) // max(1, segments),
        minutes=(minutes, minutes),
        limits=limits,
    )


def _burst_s(load: Load, rates: Rates) -> float:
    prompt_tokens = (load.prompt_tokens or _PROMPT_TOKENS) + load.depth
    decode_tok_s = rates.decode_tok_s / math.pow(load.concurrency, _FALL)
    return load.concurrency * prompt_tokens / rates.prefill_tok_s + load.output_tokens / decode_tok_s


def _limits(
    gate: CollectedGate, claims: Sequence[Claim], constants: Constants, count: int
) -> Iterator[PlannedLimit]:
    load = gate.spec.load
    looks = looks_for(gate.spec.max_rounds)
    if load.is_run:  # judged once, when it has ended
        looks = (segment_count(load, steady_requests(load)),)
    for claim in claims:
        terms = Terms(constants.of(claim.metric), looks, count)
        shown = 1 - claim.limit if claim.gate.startswith("max_slowdown") else claim.limit
        if claim.quantile is not None:
            needed = requests_needed(claim.quantile, constants.alpha / len(looks))
            yield PlannedLimit(claim.gate, shown, f"needs {needed} requests to be proven")
            continue
        if claim.kind == "baseline":
            baseline = (gate.baselines or {}).get(claim.metric)
            if baseline is None:
                yield PlannedLimit(claim.gate, shown, f"{_BY_RUNS}: {gate.problem or _NO_RUNS}")
                continue
            terms = replace(terms, baseline=baseline)
        found = forecast(claim, terms)
        by_runs = f", by the runs stored of {gate.machine}" if terms.baseline else ""
        yield PlannedLimit(claim.gate, shown, f"{found.text}{by_runs}", found.low, found.high)


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _minutes(minutes: tuple[float, float]) -> str:
    low, high = (f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in minutes)
    return f"about {low} min" if low == high else f"about {low} to {high} min"
