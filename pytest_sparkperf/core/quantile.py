"""Percentile limits: the distribution-free interval of an order statistic over all requests.

Of n requests the number below the true q-quantile is binomial, whatever the distribution; so two ranks
enclose that quantile with known probability. Requests count as independent here, and none is pulled back: a
percentile limit is about the stragglers. docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from pytest_sparkperf.core import reasons
from pytest_sparkperf.core.claim import Claim, log_speed
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.heat import NO_ALLOWANCE, Allowance
from pytest_sparkperf.core.judge import DEFAULT_TERMS, Look, Terms
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.proportion import binomial_pmf


def requests_needed(q: float, alpha: float) -> int:
    """Return how many requests it takes to bound the ``q``-quantile from the slow side with error ``alpha``.

    The slowest of n lies beyond the quantile with probability 1 - q**n.
    """
    if not (0 < q < 1 and 0 < alpha < 1):
        raise ValueError(f"q and alpha lie between 0 and 1, got {q!r} and {alpha!r}")
    return math.ceil(math.log(alpha) / math.log(q))


def check_budget(claim: Claim, requests: int, terms: Terms = DEFAULT_TERMS) -> None:
    """Raise ConfigError where a full budget of requests could never prove a percentile limit."""
    assert claim.quantile is not None
    needed = requests_needed(claim.quantile, terms.constants.alpha / len(terms.looks))
    if requests < needed:
        raise ConfigError(
            f"{claim.gate} can never be proven with {requests} requests: {_label(claim)} needs {needed}; "
            "raise requests, concurrency or max_rounds, or limit a lower percentile"
        )


@lru_cache(maxsize=1024)
def rank_below(n: int, q: float, alpha: float) -> int | None:
    """Return the largest rank (from 1, fastest first) at or under the quantile with error ``alpha``."""
    below = 0.0
    for rank in range(n + 1):
        below += binomial_pmf(rank, n, q)  # P(X <= rank): chance that rank + 1 lies beyond the quantile
        if below > alpha:
            return rank or None
    return n


@lru_cache(maxsize=1024)
def rank_above(n: int, q: float, alpha: float) -> int | None:
    """Return the smallest rank (from 1, fastest first) at or over the quantile with error ``alpha``."""
    beyond = 0.0
    for rank in range(n, -1, -1):
        beyond += binomial_pmf(rank, n, q)  # P(X >= rank): chance that this rank lies short of the quantile
        if beyond > alpha:
            return rank + 1 if rank < n else None
    return 1


def decide_quantile(
    values: Sequence[float],
    claim: Claim,
    rounds: int,
    terms: Terms = DEFAULT_TERMS,
    heat: Allowance = NO_ALLOWANCE,
) -> Look:
    """Look once at the figures of all requests, in the metric's unit, each above 0."""
    assert claim.quantile is not None
    heat = heat if claim.heats else NO_ALLOWANCE
    alpha = terms.constants.alpha / len(terms.looks)
    n, speeds = len(values), _fastest_first(claim, values)
    above, below = rank_above(n, claim.quantile, alpha), rank_below(n, claim.quantile, alpha / terms.gates)
    slow = None if above is None else speeds[above - 1] - heat.cold
    fast = None if below is None else speeds[below - 1] + heat.hot
    outcome: Literal["PASS", "FAIL", "MORE", "INCONCLUSIVE"] = "MORE"
    if slow is not None and slow > claim.log_line:
        outcome = "PASS"
    elif fast is not None and fast < claim.log_mark:
        outcome = "FAIL"
    elif rounds >= terms.looks[-1]:
        outcome = "INCONCLUSIVE"
    ends = [None if bound is None else claim.from_log(bound) for bound in (slow, fast)]
    low, high = ends if METRICS[claim.metric].higher_is_better else reversed(ends)
    estimate = _interpolated([claim.from_log(speed) for speed in speeds], claim.quantile)
    reason = ""
    if outcome == "INCONCLUSIVE" and slow is None:
        reason = reasons.too_few_requests(requests_needed(claim.quantile, alpha), n, _label(claim))
    elif outcome == "INCONCLUSIVE":
        reason = reasons.percentile_open(claim, _label(claim), low, high, n)
    gap = reasons.temperature_gap(heat.gap_c) if heat.open and outcome in ("MORE", "INCONCLUSIVE") else ""
    return Look(outcome, estimate, low, high, None, rounds, reasons.joined(reason, gap))


def _fastest_first(claim: Claim, values: Sequence[float]) -> list[float]:
    speeds = [speed for speed in (log_speed(claim.metric, value) for value in values) if speed is not None]
    if not values or len(speeds) < len(values):
        raise ValueError(f"{claim.metric} of each request must be a number above 0")
    return sorted(speeds, reverse=True)


def _interpolated(ordered: Sequence[float], q: float) -> float:
    """Return the q-quantile as Result.percentile does: linear between order statistics."""
    rank = q * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def _label(claim: Claim) -> str:
    assert claim.quantile is not None
    return f"p{100 * claim.quantile:g} of {claim.metric}"
