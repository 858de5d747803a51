"""Quantiles of the chi-squared distribution, and what they say about a standard deviation."""

from __future__ import annotations

import math

_BISECTIONS = 80


def chi_squared_below(x: float, df: int) -> float:
    """Return P(X <= x) for a whole number of degrees of freedom.

    From one or two of them (an error function, an exponential) two more at a time: P(a + 1, h) is
    P(a, h) - h^a exp(-h) / Gamma(a + 1), Abramowitz & Stegun 6.5.21.
    """
    half = x / 2
    a, below = (0.5, math.erf(math.sqrt(half))) if df % 2 else (1.0, -math.expm1(-half))
    while a < df / 2:
        below -= math.exp(-half + a * math.log(half) - math.lgamma(a + 1)) if half else 0.0
        a += 1
    return below


def chi_squared_quantile(p: float, df: int) -> float:
    """Return the x with P(X <= x) = p; raises ValueError unless 0 < p < 1 and df is at least 1."""
    if not 0 < p < 1 or df < 1:
        raise ValueError(f"p lies between 0 and 1 and df is at least 1, got {p!r} and {df!r}")
    low, high = 0.0, 1.0
    while chi_squared_below(high, df) < p:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if chi_squared_below(middle, df) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def sd_interval(sd: float, df: int, share: float = 0.95) -> tuple[float, float]:
    """Return the interval of a standard deviation that was estimated with ``df`` degrees of freedom."""
    tail = (1 - share) / 2
    low, high = (math.sqrt(df / chi_squared_quantile(p, df)) for p in (1 - tail, tail))
    return sd * low, sd * high
