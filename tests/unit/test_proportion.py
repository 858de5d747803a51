from __future__ import annotations

import pytest
from scipy import stats

from pytest_sparkperf.core.proportion import binomial_cdf, clopper_pearson, judge_error_rate


@pytest.mark.parametrize(("k", "n", "p"), [(0, 10, 0.1), (3, 48, 0.05), (600, 619, 0.99), (9, 10, 0.5)])
def test_the_binomial_agrees_with_scipy(k: int, n: int, p: float) -> None:
    assert binomial_cdf(k, n, p) == pytest.approx(float(stats.binom.cdf(k, n, p)), rel=1e-9)


@pytest.mark.parametrize(
    ("k", "p", "expected"), [(-1, 0.5, 0.0), (5, 0.5, 1.0), (2, 0.0, 1.0), (2, 1.0, 0.0)]
)
def test_the_binomial_at_its_ends(k: int, p: float, expected: float) -> None:
    assert binomial_cdf(k, 5, p) == expected


@pytest.mark.parametrize(("hits", "n"), [(0, 48), (1, 48), (5, 200), (48, 48), (1, 1)])
def test_the_exact_interval_agrees_with_scipy(hits: int, n: int) -> None:
    low = float(stats.beta.ppf(0.01, hits, n - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(0.99, hits + 1, n - hits)) if hits < n else 1.0

    assert clopper_pearson(hits, n, 0.01) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize(("hits", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_a_share_of_nothing_is_refused(hits: int, n: int) -> None:
    with pytest.raises(ValueError) as refused:
        clopper_pearson(hits, n, 0.01)

    assert str(refused.value) == (f"hits lie between 0 and n, and n is at least 1: got {hits!r} of {n!r}")


@pytest.mark.parametrize(
    ("failed", "limit", "outcome"), [(0, 0.0, "PASS"), (1, 0.0, "FAIL"), (1, 0.05, "PASS"), (3, 0.05, "FAIL")]
)
def test_an_error_rate_is_judged_as_observed(failed: int, limit: float, outcome: str) -> None:
    verdict = judge_error_rate(failed, 48, limit)

    assert verdict.outcome == outcome
    assert verdict.estimate == failed / 48
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low <= failed / 48 < verdict.high
    assert verdict.reason == (f"{failed} of 48 requests failed" if failed else "")


def test_no_request_is_no_error_rate() -> None:
    verdict = judge_error_rate(0, 0, 0.0)

    assert (verdict.outcome, verdict.estimate) == ("ERROR", None)
    assert verdict.reason == "no request was sent, so none could fail"
