"""Shares: the exact interval of a counted proportion, and the verdict on a server's error rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.result import Verdict

_BISECTIONS = 60


def binomial_pmf(k: int, n: int, p: float) -> float:
    """Return P(X = k) for X ~ Bin(n, p), 0 < p < 1."""
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return P(X <= k) for X ~ Bin(n, p)."""
    if k < 0 or p >= 1:
        return 0.0 if k < n else 1.0
    return 1.0 if k >= n or p <= 0 else min(1.0, math.fsum(binomial_pmf(i, n, p) for i in range(k + 1)))


def clopper_pearson(hits: int, n: int, alpha: float) -> tuple[float, float]:
    """Return the exact bounds of a proportion, each with error ``alpha``; needs n >= 1."""
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"hits lie between 0 and n, and n is at least 1: got {hits!r} of {n!r}")
    low = 0.0 if hits == 0 else _solve(lambda p: 1 - binomial_cdf(hits - 1, n, p) > alpha)
    high = 1.0 if hits == n else _solve(lambda p: binomial_cdf(hits, n, p) <= alpha)
    return low, high


def judge_error_rate(
    failed: int, sent: int, limit: float, *, gate: str = "max_error_rate", alpha: float = ASSUMED.alpha
) -> Verdict:
    """Judge the share of requests that the server failed, as observed; the interval is shown, not judged.

    A limit of 0 could never be proven from a sample, and one failed request is one too many for it.
    """
    if sent < 1:
        return Verdict(
            gate, "ERROR", None, None, None, limit, None, "no request was sent, so none could fail"
        )
    observed = failed / sent
    low, high = clopper_pearson(failed, sent, alpha)
    met = observed <= limit
    reason = f"{failed} of {sent} requests failed" if failed else ""
    return Verdict(gate, "PASS" if met else "FAIL", observed, low, high, limit, None, reason)


def _solve(beyond: Callable[[float], bool]) -> float:
    """Return the p in (0, 1) at which a condition that holds for large p begins to hold."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if beyond(middle):
            high = middle
        else:
            low = middle
    return (low + high) / 2
