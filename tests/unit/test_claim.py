from __future__ import annotations

import math

import pytest

from pytest_sparkperf.core.claim import Claim, ceiling, floor, log_speed, margin, speedup
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.metrics import METRICS


def test_an_absolute_limit_is_line_and_mark_alike() -> None:
    assert floor("min_decode", "decode_tok_s", 100) == Claim(
        "min_decode", "decode_tok_s", "absolute", 100, 100, 100
    )
    assert ceiling("max_ttft_ms", "ttft_ms", 250) == Claim(
        "max_ttft_ms", "ttft_ms", "absolute", 250, 250, 250
    )


def test_a_tolerance_moves_the_line_away_from_the_mark() -> None:
    rate = floor("min_decode", "decode_tok_s", 100, 0.02)
    latency = ceiling("max_ttft_ms", "ttft_ms", 250, 0.1)
    ratio = speedup("decode_tok_s", 1.25, 0.02)

    assert (rate.line, rate.mark) == (98, 100)
    assert (latency.line, latency.mark) == pytest.approx((275, 250))
    assert (ratio.line, ratio.mark) == (1.225, 1.25)


@pytest.mark.parametrize(("max_slowdown", "mark"), [(0.05, 0.99), (0.03, 0.99), (0.01, 0.995)])
def test_a_margin_has_two_lines(max_slowdown: float, mark: float) -> None:
    paired = margin("decode_tok_s", max_slowdown, paired=True)
    stored = margin("decode_tok_s", max_slowdown, paired=False)

    assert (paired.kind, stored.kind) == ("paired", "baseline")
    assert (paired.line, paired.mark, paired.limit) == (1 - max_slowdown, mark, 1 - max_slowdown)


def test_inside_a_claim_larger_is_better_for_latencies_too() -> None:
    claim = ceiling("max_ttft_ms", "ttft_ms", 250, 0.1)

    assert claim.log_line < claim.log_mark
    assert claim.interval(-math.log(300), -math.log(200)) == pytest.approx((200, 300))
    assert claim.from_log(claim.log_mark) == pytest.approx(250)


def test_a_ratio_of_latencies_is_a_ratio_of_speeds() -> None:
    """A margin on TPOT is the same claim as that margin on the decode rate."""
    latency = margin("tpot_ms", 0.2, paired=True)
    faster = log_speed("tpot_ms", 8.0)
    slower = log_speed("tpot_ms", 10.0)
    assert faster is not None
    assert slower is not None

    assert latency.from_log(slower - faster) == pytest.approx(0.8)
    assert latency.unit == ""


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf])
def test_what_cannot_be_a_speed_is_missing(value: float | None) -> None:
    assert log_speed("decode_tok_s", value) is None


@pytest.mark.parametrize("metric", ["acceptance_rate", "goodput_rps"])
def test_a_zero_that_is_a_finding_counts_as_very_small(metric: str) -> None:
    assert log_speed(metric, 0.0) == math.log(1e-3)
    assert log_speed(metric, -0.1) is None


@pytest.mark.parametrize("metric", ["acceptance_rate", "acceptance_length", "memory_gib"])
def test_acceptance_and_memory_do_not_feel_heat(metric: str) -> None:
    assert not Claim("gate", metric, "absolute", 1, 1, 1).heats


def test_a_floor_of_a_latency_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        floor("min_ttft_ms", "ttft_ms", 100)

    assert str(refused.value) == (
        "min_ttft_ms cannot limit ttft_ms: smaller is better there, so use a max_ limit"
    )


def test_a_ceiling_of_a_rate_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        ceiling("max_decode", "decode_tok_s", 100)

    assert str(refused.value) == (
        "max_decode cannot limit decode_tok_s: larger is better there, so use a min_ limit"
    )


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        margin("speed", 0.05, paired=True)

    assert str(refused.value) == (
        f"max_slowdown names the unknown metric 'speed'; there are {', '.join(METRICS)}"
    )


@pytest.mark.parametrize("limit", [0.0, -5.0, math.nan, math.inf])
def test_a_limit_that_is_no_positive_number_is_refused(limit: float) -> None:
    with pytest.raises(ConfigError) as refused:
        floor("min_decode", "decode_tok_s", limit)

    assert str(refused.value) == f"min_decode={limit!r} cannot be judged: use a number above 0"


@pytest.mark.parametrize("tolerance", [-0.01, 1.0])
def test_a_tolerance_outside_its_range_is_refused(tolerance: float) -> None:
    with pytest.raises(ConfigError) as refused:
        speedup("decode_tok_s", 1.25, tolerance)

    assert str(refused.value) == (
        f"min_speedup has tolerance={tolerance!r}: use a number from 0 to below 1, 0.02 for 2 %"
    )


@pytest.mark.parametrize("max_slowdown", [0.0, 1.0, 5])
def test_a_slowdown_that_is_no_share_is_refused(max_slowdown: float) -> None:
    with pytest.raises(ConfigError) as refused:
        margin("decode_tok_s", max_slowdown, paired=False)

    assert str(refused.value) == (
        f"max_slowdown={max_slowdown!r} is not a share of the speed: use a number between 0 and 1, "
        "0.05 for at most 5 % slower"
    )


def test_the_interval_of_a_share_ends_at_1() -> None:
    rate = floor("min_acceptance_rate", "acceptance_rate", 0.9)
    length = floor("min_acceptance_length", "acceptance_length", 3.0)

    assert rate.interval(math.log(0.97), math.log(1.02)) == pytest.approx((0.97, 1.0))
    assert length.interval(math.log(3.9), math.log(4.1)) == pytest.approx((3.9, 4.1))
