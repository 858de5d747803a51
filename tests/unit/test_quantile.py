from __future__ import annotations

import math
import random

import pytest
from scipy import stats

from pytest_sparkperf.core.claim import ceiling, floor
from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.heat import allowance
from pytest_sparkperf.core.judge import Terms
from pytest_sparkperf.core.quantile import (
    check_budget,
    decide_quantile,
    rank_above,
    rank_below,
    requests_needed,
)

P90_TTFT = ceiling("max_ttft_p90_ms", "ttft_ms", 200.0, quantile=0.9)


@pytest.mark.parametrize(("q", "needed"), [(0.9, 59), (0.95, 122), (0.99, 619)])
def test_how_many_requests_a_percentile_needs(q: float, needed: int) -> None:
    """The slowest of n lies beyond the quantile with probability 1 - q**n."""
    assert requests_needed(q, 0.01 / 5) == needed
    assert q**needed <= 0.002 < q ** (needed - 1)


@pytest.mark.parametrize(("q", "alpha"), [(0.0, 0.01), (1.0, 0.01), (0.9, 0.0)])
def test_a_percentile_that_does_not_exist_is_refused(q: float, alpha: float) -> None:
    with pytest.raises(ValueError) as refused:
        requests_needed(q, alpha)

    assert str(refused.value) == f"q and alpha lie between 0 and 1, got {q!r} and {alpha!r}"


@pytest.mark.parametrize("n", [20, 59, 122, 400])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.95])
def test_ranks_are_the_closest_that_keep_the_error(n: int, q: float) -> None:
    above, below = rank_above(n, q, 0.002), rank_below(n, q, 0.002)

    assert below is not None
    assert stats.binom.cdf(below - 1, n, q) <= 0.002 < stats.binom.cdf(below, n, q)
    if above is None:
        assert q**n > 0.002
    else:
        assert stats.binom.sf(above - 1, n, q) <= 0.002 < stats.binom.sf(above - 2, n, q)


def test_too_few_requests_bound_nothing() -> None:
    assert rank_above(58, 0.9, 0.002) is None
    assert rank_above(59, 0.9, 0.002) == 59
    assert rank_below(2, 0.5, 0.002) is None


@pytest.mark.parametrize(("worst_ms", "outcome"), [(150.0, "PASS"), (250.0, "MORE")])
def test_a_p90_is_proven_by_59_requests_under_it(worst_ms: float, outcome: str) -> None:
    values = [100.0] * 58 + [worst_ms]

    assert decide_quantile(values, P90_TTFT, 6).outcome == outcome


def test_a_p90_over_its_limit_fails() -> None:
    values = [100.0] * 30 + [300.0] * 30

    look = decide_quantile(values, P90_TTFT, 6)

    assert look.outcome == "FAIL"
    assert (look.low, look.high, look.estimate) == pytest.approx((300.0, 300.0, 300.0))


def test_a_share_of_the_requests_is_fast_enough() -> None:
    """``min_decode_p90`` says that 90 % of the requests decode at least that fast."""
    claim = floor("min_decode_p90", "decode_tok_s", 100.0, quantile=0.9)

    passed = decide_quantile([110.0] * 60, claim, 6)
    failed = decide_quantile([110.0] * 30 + [90.0] * 30, claim, 6)

    assert (passed.outcome, failed.outcome) == ("PASS", "FAIL")
    assert (failed.low, failed.high) == pytest.approx((90.0, 90.0))


def test_the_estimate_is_interpolated_like_a_percentile_of_a_result() -> None:
    claim = ceiling("max_ttft_p75_ms", "ttft_ms", 1000.0, quantile=0.75)

    assert decide_quantile([100.0, 200.0, 300.0], claim, 3).estimate == pytest.approx(250)


def test_a_stalled_request_is_not_pulled_back() -> None:
    look = decide_quantile([100.0] * 58 + [5000.0], P90_TTFT, 12)

    assert look.outcome == "INCONCLUSIVE"
    assert look.high == pytest.approx(5000.0)
    assert look.reason == (
        "59 requests leave p90 of ttft_ms at 100 to 5000 ms, which does not settle the limit of 200: "
        "raise requests or max_rounds, or move the limit"
    )


def test_too_few_requests_are_inconclusive_and_say_how_many_it_takes() -> None:
    look = decide_quantile([100.0] * 48, P90_TTFT, 12)

    assert (look.outcome, look.high) == ("INCONCLUSIVE", None)
    assert look.reason == (
        "p90 of ttft_ms needs 59 requests to be proven, 48 were measured: raise requests or max_rounds"
    )


def test_a_cold_machine_is_allowed_for() -> None:
    heat = allowance(50.0, 80.0, ASSUMED)
    look = decide_quantile([190.0] * 59, P90_TTFT, 6, heat=heat)

    assert look.outcome == "MORE"
    assert look.high == pytest.approx(190.0 * math.exp(28 * 0.09 / 35))


def test_the_interval_covers_the_true_quantile_of_a_skewed_distribution() -> None:
    """At 98 % nominal, 400 draws; the binomial steps make it wider, never narrower."""
    source = random.Random(4)
    truth = -100 * math.log(1 - 0.9)
    missed = 0
    for _ in range(400):
        look = decide_quantile(
            [source.expovariate(1 / 100) for _ in range(150)], P90_TTFT, 3, Terms(looks=(3,))
        )
        assert look.low is not None
        assert look.high is not None
        missed += not look.low <= truth <= look.high

    assert missed <= 16


def test_a_budget_that_can_never_prove_a_percentile_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        check_budget(P90_TTFT, 48)

    assert str(refused.value) == (
        "max_ttft_p90_ms can never be proven with 48 requests: p90 of ttft_ms needs 59; "
        "raise requests, concurrency or max_rounds, or limit a lower percentile"
    )


@pytest.mark.parametrize("values", [[], [100.0, 0.0]])
def test_an_impossible_figure_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError) as refused:
        decide_quantile(values, P90_TTFT, 3)

    assert str(refused.value) == "ttft_ms of each request must be a number above 0"
