"""The rules of other tools, on the log rates of two samples of requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance
from typing import Literal

from scipy.special import stdtrit

Answer = Literal["PASS", "FAIL", "INCONCLUSIVE"]
Rates = Sequence[float]
Rule = Callable[[Rates, Rates], Answer]


def mean_time_within(share: float, requests: int = 5) -> Rule:
    """pytest-benchmark's ``--benchmark-compare-fail=mean:share``: it compares mean times."""

    def rule(before: Rates, after: Rates) -> Answer:
        times = [fmean(math.exp(-rate) for rate in rates[:requests]) for rates in (before, after)]
        return _fail_if(times[1] / times[0] - 1 > share)

    return rule


def action_200_percent(before: Rates, after: Rates) -> Answer:
    """github-action-benchmark at its default threshold: twice as slow."""
    means = [fmean(math.exp(rate) for rate in rates[:5]) for rates in (before, after)]
    return _fail_if(means[0] / means[1] > 2)


def best_of_three_within(share: float) -> Rule:
    """Compare the best of three requests with the best of three."""

    def rule(before: Rates, after: Rates) -> Answer:
        return _fail_if(max(after[:3]) - max(before[:3]) < math.log(1 - share))

    return rule


def welch_within(share: float, runs: int = 3, requests: int = 8, confidence: float = 0.90) -> Rule:
    """A Welch interval on the ratio of means of whole runs, with one line at ``share``."""

    def rule(before: Rates, after: Rates) -> Answer:
        a, b = (_run_means(rates, runs, requests) for rates in (before, after))
        terms = [variance(x) / (runs * fmean(x) ** 2) for x in (a, b)]
        total = sum(terms)
        df = total**2 / sum(term**2 / (runs - 1) for term in terms)
        half = float(stdtrit(df, 0.5 + confidence / 2)) * math.sqrt(total)
        ratio = math.log(fmean(b) / fmean(a))
        if 1 - math.exp(ratio + half) >= share:
            return "FAIL"
        return "PASS" if 1 - math.exp(ratio - half) < share else "INCONCLUSIVE"

    return rule


def best_of_three_over(floor: float) -> Rule:
    """Compare the best of three requests with a limit; there is no second sample."""

    def rule(_: Rates, after: Rates) -> Answer:
        return _fail_if(max(after[:3]) < math.log(floor))

    return rule


def one_request_over(floor: float) -> Rule:
    """Compare one request with a limit."""

    def rule(_: Rates, after: Rates) -> Answer:
        return _fail_if(after[0] < math.log(floor))

    return rule


def _fail_if(found: bool) -> Answer:
    return "FAIL" if found else "PASS"


def _run_means(rates: Rates, runs: int, requests: int) -> list[float]:
    """Return the rate of each run: requests over their summed time."""
    return [
        1 / fmean(math.exp(-rate) for rate in rates[requests * run : requests * (run + 1)])
        for run in range(runs)
    ]
