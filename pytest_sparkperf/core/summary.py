"""Rounds of log speeds to one estimate with its spread; stored runs to a baseline with theirs.

The round is the unit, not the request: a round holds every prompt, so its mean is comparable with the next
one's, and correlation between neighbouring requests stays inside it. A request far off its prompt's median
is pulled back to ``clamp_sigmas`` and counted. The prompts are fixed, not a sample: the claim is about them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from pytest_sparkperf.core.claim import log_speed
from pytest_sparkperf.core.constants import ASSUMED, Constants

# Median of |difference of two normal values| in units of their sd: 0.6745 * sqrt(2).
_STEP_TO_SIGMA = 0.9539

Rounds = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The estimate of one window of rounds, on the log scale.

    ``theta`` is the mean over prompts of the log speed (or log ratio), ``sd`` that of a round's mean, blended
    with the prior, ``drift`` the fitted change over the window.
    """

    theta: float
    sd: float
    rounds: int
    requests: int
    clamped_requests: int
    drift: float

    @property
    def se(self) -> float:
        """Standard error of theta from the requests' own noise."""
        return self.sd / math.sqrt(self.rounds)

    @property
    def clamped(self) -> float:
        """Share of the requests that were pulled back, 0 to 1."""
        return self.clamped_requests / self.requests


def summarize(rounds: Rounds, prompts: Sequence[int], constants: Constants = ASSUMED) -> Summary:
    """Summarize ``rounds[r][c]``, the log speed of cell c in round r; ``prompts[c]`` is the cell's prompt.

    Raises ValueError below two rounds or where a round is incomplete.
    """
    n, cells = len(rounds), len(prompts)
    if n < 2 or any(len(row) != cells for row in rounds):
        raise ValueError(f"needs at least two rounds of {cells} cells, got {[len(row) for row in rounds]}")
    middles = _prompt_medians(rounds, prompts)
    cut = constants.clamp_sigmas * max(constants.sigma_min, request_sd(rounds))
    clamped, means = 0, []
    for row in rounds:
        errors = [value - middle for value, middle in zip(row, middles, strict=True)]
        clamped += sum(abs(error) > cut for error in errors)
        means.append(math.fsum(min(cut, max(-cut, error)) for error in errors) / cells)
    variance = _blend(constants.round_sd, constants.round_df, means)
    theta = fmean(middles) + fmean(means)
    return Summary(theta, math.sqrt(variance), n, n * cells, clamped, theil_sen(means) * (n - 1))


def theil_sen(values: Sequence[float]) -> float:
    """Return the median slope per step between all pairs of values; needs two of them."""
    n = len(values)
    return median([(values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n)])


def request_sd(rounds: Rounds) -> float:
    """Return the sd of a request from steps between rounds: needs no centre, ignores slow drift."""
    steps = [
        abs(now - before)
        for earlier, later in pairwise(rounds)
        for before, now in zip(earlier, later, strict=True)
    ]
    return median(steps) / _STEP_TO_SIGMA


def _prompt_medians(rounds: Rounds, prompts: Sequence[int]) -> list[float]:
    """Return per cell the median of all values of its prompt."""
    values: dict[int, list[float]] = {}
    for row in rounds:
        for prompt, value in zip(prompts, row, strict=True):
            values.setdefault(prompt, []).append(value)
    middle = {prompt: median(found) for prompt, found in values.items()}
    return [middle[prompt] for prompt in prompts]


def _blend(prior_sd: float, prior_df: int, values: Sequence[float]) -> float:
    """Return the variance of values blended with a prior worth ``prior_df`` degrees of freedom."""
    own_df = len(values) - 1
    centre = fmean(values)
    squares = math.fsum((value - centre) ** 2 for value in values)
    return (prior_df * prior_sd**2 + squares) / (prior_df + own_df)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Accepted earlier runs: their log speeds (:attr:`Summary.theta`) and the temperatures they ran at."""

    thetas: tuple[float, ...]
    temperatures_c: tuple[float | None, ...] = ()

    @property
    def mean(self) -> float:
        """Mean log speed of the stored runs."""
        return fmean(self.thetas)

    @property
    def temperature_c(self) -> float | None:
        """Mean temperature of the runs that recorded one."""
        known = [value for value in self.temperatures_c if value is not None]
        return fmean(known) if known else None

    def df(self, constants: Constants) -> int:
        """Degrees of freedom of the run-to-run spread, the prior's included."""
        return constants.run_df + len(self.thetas) - 1

    def sd(self, constants: Constants) -> float:
        """Spread between runs, blended with the prior."""
        return math.sqrt(_blend(constants.run_sd, constants.run_df, self.thetas))

    def se(self, constants: Constants) -> float:
        """Standard error of (one run today - mean of the stored ones), without today's request noise."""
        return self.sd(constants) * math.sqrt(1 + 1 / len(self.thetas))


def baseline_of(
    metric: str, values: Sequence[float], temperatures_c: Sequence[float | None] = ()
) -> Baseline:
    """Build a baseline from figures in the metric's unit; raises ValueError for none or an impossible one."""
    thetas = [log_speed(metric, value) for value in values]
    usable = tuple(theta for theta in thetas if theta is not None)
    if not usable or len(usable) < len(thetas):
        raise ValueError(f"a baseline of {metric} needs figures above 0, got {list(values)!r}")
    return Baseline(usable, tuple(temperatures_c))
