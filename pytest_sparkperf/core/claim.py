"""What a limit claims: one metric, a line that PASS must clear and a mark that FAIL must stay under.

Everything is judged as speed on the log scale: a rate by its logarithm, a latency by minus its logarithm. So
one rule serves rates, latencies and ratios, and "larger is better" holds inside whatever the metric is.

A ratio is always a ratio of speeds, B's over A's (or today's over the baseline's): above 1, B is faster. For
a latency it is A's latency over B's: ``max_slowdown=0.2`` lets a latency grow to 1 / 0.8 = 1.25 times, which
makes a margin on TPOT the same claim as that margin on the decode rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.metrics import METRICS

Kind = Literal["absolute", "baseline", "paired"]

# Quantities for which 0 is a finding and not a broken measurement; on the log scale it counts as this.
_SMALLEST = {"acceptance_rate": 1e-3, "goodput_rps": 1e-3}
# Quantities that cannot be larger: an interval that reaches beyond is cut off there.
_LARGEST = {"acceptance_rate": 1.0}
# Quantities that do not change with the temperature of the GPU.
_WITHOUT_HEAT = frozenset({"acceptance_rate", "acceptance_length", "error_rate", "memory_gib"})


@dataclass(frozen=True, slots=True)
class Claim:
    """One limit of one test.

    ``limit`` is what is printed beside the verdict. ``line`` and ``mark`` are in the metric's unit for an
    absolute claim, speed ratios otherwise. ``quantile`` (0 to 1) makes it a claim about single requests:
    that share of them is at least as fast as the limit.
    """

    gate: str
    metric: str
    kind: Kind
    limit: float
    line: float
    mark: float
    quantile: float | None = None

    @property
    def log_line(self) -> float:
        """The line as log speed (or log ratio)."""
        return self._sign * math.log(self.line)

    @property
    def log_mark(self) -> float:
        """The mark as log speed (or log ratio)."""
        return self._sign * math.log(self.mark)

    @property
    def unit(self) -> str:
        """The unit of estimate, bounds and limit; empty for a ratio."""
        return METRICS[self.metric].unit if self.kind == "absolute" else ""

    @property
    def heats(self) -> bool:
        """Does a hot machine change this metric?"""
        return self.metric not in _WITHOUT_HEAT

    def from_log(self, log_speed: float) -> float:
        """Turn a log speed (or log ratio) back into the claim's unit."""
        return math.exp(self._sign * log_speed)

    def interval(self, slow: float, fast: float) -> tuple[float, float]:
        """Turn the bounds on log speed into the claim's unit, smaller figure first."""
        largest = _LARGEST.get(self.metric, math.inf) if self.kind == "absolute" else math.inf
        first, last = self.from_log(slow), min(self.from_log(fast), largest)
        return (first, last) if self._sign > 0 else (last, first)

    @property
    def _sign(self) -> int:
        return 1 if self.kind != "absolute" or METRICS[self.metric].higher_is_better else -1


def log_speed(metric: str, value: float | None) -> float | None:
    """Return the log speed of one figure; None where it is missing or cannot be one (0, negative, NaN)."""
    if value is None or not math.isfinite(value):
        return None
    if value <= 0:
        smallest = _SMALLEST.get(metric)
        if smallest is None or value < 0:
            return None
        value = smallest
    return math.log(value) if METRICS[metric].higher_is_better else -math.log(value)


def floor(
    gate: str, metric: str, limit: float, tolerance: float = 0.0, *, quantile: float | None = None
) -> Claim:
    """Claim that a rate is at least ``limit``: PASS above limit * (1 - tolerance), FAIL below the limit.

    With a ``quantile``, that share of the requests is at least that fast.
    """
    _check_absolute(gate, metric, limit, tolerance, higher_is_better=True)
    return Claim(gate, metric, "absolute", limit, limit * (1 - tolerance), limit, quantile)


def ceiling(
    gate: str, metric: str, limit: float, tolerance: float = 0.0, *, quantile: float | None = None
) -> Claim:
    """Claim that a latency is at most ``limit``: PASS below limit * (1 + tolerance), FAIL above the limit.

    With a ``quantile``, that share of the requests has at most that latency.
    """
    _check_absolute(gate, metric, limit, tolerance, higher_is_better=False)
    return Claim(gate, metric, "absolute", limit, limit * (1 + tolerance), limit, quantile)


def margin(
    metric: str,
    max_slowdown: float,
    *,
    paired: bool,
    gate: str = "max_slowdown",
    allow: float = ASSUMED.allow,
) -> Claim:
    """Claim that B (or today) has not lost more than ``max_slowdown`` of the speed of A (or the baseline).

    PASS above 1 - max_slowdown. FAIL below 1 - min(allow, max_slowdown / 2): a loss up to ``allow`` is never
    called a regression.
    """
    _known(gate, metric)
    if not 0 < max_slowdown < 1:
        raise ConfigError(
            f"{gate}={max_slowdown!r} is not a share of the speed: use a number between 0 and 1, "
            "0.05 for at most 5 % slower"
        )
    line, mark = 1 - max_slowdown, 1 - min(allow, max_slowdown / 2)
    return Claim(gate, metric, "paired" if paired else "baseline", line, line, mark)


def speedup(metric: str, min_speedup: float, tolerance: float = 0.0, *, gate: str = "min_speedup") -> Claim:
    """Claim that B is at least ``min_speedup`` times as fast as A."""
    _known(gate, metric)
    _check_limit(gate, min_speedup)
    _check_tolerance(gate, tolerance)
    return Claim(gate, metric, "paired", min_speedup, min_speedup * (1 - tolerance), min_speedup)


def _check_absolute(
    gate: str, metric: str, limit: float, tolerance: float, *, higher_is_better: bool
) -> None:
    _known(gate, metric)
    if METRICS[metric].higher_is_better is not higher_is_better:
        better, word = ("smaller", "max") if higher_is_better else ("larger", "min")
        raise ConfigError(f"{gate} cannot limit {metric}: {better} is better there, so use a {word}_ limit")
    _check_limit(gate, limit)
    _check_tolerance(gate, tolerance)


def _known(gate: str, metric: str) -> None:
    if metric not in METRICS:
        raise ConfigError(f"{gate} names the unknown metric {metric!r}; there are {', '.join(METRICS)}")


def _check_limit(gate: str, limit: float) -> None:
    if not (math.isfinite(limit) and limit > 0):
        raise ConfigError(f"{gate}={limit!r} cannot be judged: use a number above 0")


def _check_tolerance(gate: str, tolerance: float) -> None:
    if not 0 <= tolerance < 1:
        raise ConfigError(f"{gate} has tolerance={tolerance!r}: use a number from 0 to below 1, 0.02 for 2 %")
