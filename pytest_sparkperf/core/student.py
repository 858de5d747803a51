"""Quantiles of Student's t and of the normal, from the standard library alone."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_BISECTIONS = 80


def t_upper(t: float, df: int) -> float:
    """Return P(T > t) for t >= 0 and a whole number of degrees of freedom.

    The finite series of Abramowitz & Stegun 26.7.3 (odd df) and 26.7.4 (even df). A difference of two nearly
    equal numbers, so good to about 1e-16 absolute: fine for the alphas of a gate, not for 1e-12.
    """
    angle = math.atan2(t, math.sqrt(df))
    sine, cosine_squared = math.sin(angle), math.cos(angle) ** 2
    if df % 2:
        term = total = math.cos(angle) if df > 1 else 0.0
        first = 3
    else:
        term = total = 1.0
        first = 2
    for k in range(first, df - 1, 2):
        term *= cosine_squared * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if df % 2 else sine * total
    return (1 - inside) / 2


@lru_cache(maxsize=4096)
def t_quantile(alpha: float, df: int) -> float:
    """Return the t with P(T > t) = alpha, for alpha up to one half; raises ValueError outside that."""
    if not 0 < alpha <= 0.5 or df < 1:
        raise ValueError(f"alpha lies above 0 and up to 0.5 and df is at least 1, got {alpha!r} and {df!r}")
    low, high = 0.0, 1.0
    while t_upper(high, df) > alpha:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if t_upper(middle, df) > alpha:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@lru_cache(maxsize=256)
def z_quantile(alpha: float) -> float:
    """Return the z with P(Z > z) = alpha of the standard normal."""
    return NormalDist().inv_cdf(1 - alpha)
