"""From a gate to what is sampled: the cells of a round, and the claims that its limits make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_sparkperf.core.acceptance import ACCEPTANCE_METRICS
from pytest_sparkperf.core.baseline import MIN_ROUNDS
from pytest_sparkperf.core.claim import Claim, ceiling, floor, margin, speedup
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.gate import UNSAMPLED, Comparison, GateSpec, Limit
from pytest_sparkperf.core.heat import NO_HEAT, Thermal
from pytest_sparkperf.core.judge import Terms
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.longrun import MOST_SEGMENTS, steady_requests
from pytest_sparkperf.core.order import cells_for, looks_for
from pytest_sparkperf.core.quantile import check_budget
from pytest_sparkperf.core.sampling import Plan

# The shipped prompts of one stream.
_PROMPTS = 4
# Bursts in a round: four, as there are requests at concurrency 1, or two where each is many requests itself.
_BURSTS, _FEW_BURSTS, _FEW_FROM = 4, 2, 8
# A server that was just started is not warm before it has served this many requests of a shape.
_WARM_REQUESTS = 8


def cells_of(load: Load) -> tuple[int, ...]:
    """Return the prompt of each cell of a round; above a concurrency of 1 a cell is a burst of them all."""
    if load.concurrency == 1:
        return cells_for(_PROMPTS)
    return (0,) * (_FEW_BURSTS if load.concurrency >= _FEW_FROM else _BURSTS)


def main_metric(load: Load) -> str:
    """Return the metric that a comparison without a named one judges, and that warm-up watches."""
    alone = load.concurrency == 1 and load.request_rate is None
    return "decode_tok_s" if alone else "output_tok_s"


def claims_of(spec: GateSpec) -> list[Claim]:
    """Return what a gate claims of sampled figures; its error rate is counted, memory is read."""
    claims = [_limit_claim(limit, spec.tolerance) for limit in spec.limits if limit.metric not in UNSAMPLED]
    return claims + [_comparison_claim(comparison, spec) for comparison in spec.comparisons]


def judges_acceptance(spec: GateSpec) -> bool:
    """Tell whether a gate limits how many drafted tokens are accepted."""
    return any(limit.metric in ACCEPTANCE_METRICS for limit in spec.limits)


def plan_of(
    spec: GateSpec, *, gates: int = 1, thermal: Thermal = NO_HEAT, constants: Constants = ASSUMED
) -> Plan:
    """Return how a gate is sampled; ``gates`` are the limits of the session."""
    load = spec.load.burst
    cells = cells_of(load)
    per_pass = len(cells) * load.concurrency
    return Plan(
        prompts=cells,
        paired=spec.against is not None,
        max_rounds=spec.max_rounds,
        min_passes=max(2, -(-_WARM_REQUESTS // per_pass)),
        requests_per_pass=per_pass,
        steady_metric=main_metric(spec.load),
        gates=gates,
        thermal=thermal,
        constants=constants,
    )


def record_plan(plan: Plan) -> Plan:
    """Return how a run is sampled that is to be recorded: settled first, for as many rounds as that takes.

    A known plateau is no use here: a run that is allowed for differs from one that has settled.
    """
    thermal = Thermal("soak") if plan.thermal.mode == "plateau" else plan.thermal
    return replace(plan, min_rounds=MIN_ROUNDS, settle=True, thermal=thermal)


def check_claims(spec: GateSpec, claims: Sequence[Claim]) -> None:
    """Raise ConfigError for a percentile limit that even the whole budget could not prove."""
    plan = plan_of(spec)
    requests, looks = plan.max_rounds * (plan.requests_per_pass or 0), looks_for(plan.max_rounds)
    if spec.load.is_run:
        requests, looks = steady_requests(spec.load), (MOST_SEGMENTS,)
    for claim in claims:
        if claim.quantile is not None:
            check_budget(claim, requests, Terms(looks=looks))


def _limit_claim(limit: Limit, tolerance: float) -> Claim:
    build = floor if limit.is_floor else ceiling
    return build(limit.gate, limit.metric, limit.bound, tolerance, quantile=limit.quantile)


def _comparison_claim(comparison: Comparison, spec: GateSpec) -> Claim:
    metric = comparison.metric or main_metric(spec.load)
    if comparison.gate.startswith("max_slowdown"):
        return margin(metric, comparison.bound, paired=spec.against is not None, gate=comparison.gate)
    return speedup(metric, comparison.bound, spec.tolerance, gate=comparison.gate)
