"""The bandwidth ceiling: figures that are stated decide, unknown ones decide nothing."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.ceiling import (
    BANDWIDTH_GB_S,
    bandwidth_of,
    ceiling_of,
    impossible_rate,
)
from pytest_sparkperf.core.validity import IMPOSSIBLE_RATE, SENTENCES


def test_ceiling_is_k_plus_1_times_bandwidth_by_weights_read() -> None:
    ceiling = ceiling_of(bandwidth_gb_s=273, gb_per_token=2, k=3)

    assert ceiling is not None
    assert ceiling.steps_s == pytest.approx(136.5)
    assert ceiling.decode_tok_s == pytest.approx(546)


def test_cards_add_up_and_are_known_by_either_name() -> None:
    assert bandwidth_of(["NVIDIA GB10", "gb10"]) == 546
    assert bandwidth_of(["NVIDIA H200"]) == 4800


@pytest.mark.parametrize("gpus", [[], ["NVIDIA GB10", "NVIDIA Something New"]])
def test_an_unknown_card_has_no_bandwidth(gpus: list[str]) -> None:
    assert bandwidth_of(gpus) is None


@pytest.mark.parametrize(
    ("bandwidth", "weights", "k"), [(None, 2.0, 3), (273.0, None, 3), (273.0, 2.0, None), (273.0, 0.0, 3)]
)
def test_ceiling_is_unknown_while_a_figure_is(
    bandwidth: float | None, weights: float | None, k: int | None
) -> None:
    assert ceiling_of(bandwidth_gb_s=bandwidth, gb_per_token=weights, k=k) is None


def test_a_rate_above_the_ceiling_is_a_fault_with_its_figures() -> None:
    # 1,934 tok/s came of a parser that held tokens back, on a machine with 273 GB/s.
    fault = impossible_rate(
        1934.3, ceiling_of(bandwidth_gb_s=BANDWIDTH_GB_S["NVIDIA GB10"], gb_per_token=2, k=3)
    )

    assert fault is not None
    assert fault.reason == IMPOSSIBLE_RATE
    assert fault.text == "1934 tok/s where 273 GB/s and 2 GB per token allow 546 at k=3"


def test_a_rate_at_the_ceiling_is_possible() -> None:
    ceiling = ceiling_of(bandwidth_gb_s=273, gb_per_token=2, k=3)

    assert impossible_rate(546.0, ceiling) is None
    assert impossible_rate(546.1, ceiling) is not None


def test_nothing_is_impossible_where_rate_or_ceiling_is_unknown() -> None:
    assert impossible_rate(10**9, None) is None
    assert impossible_rate(None, ceiling_of(bandwidth_gb_s=273, gb_per_token=2, k=3)) is None


# 100.8 tok/s with k=3 and 69.3 without, one stream on a GB10 with about 3 GB active: far from the ceiling.
@pytest.mark.parametrize(("rate", "k"), [(100.8, 3), (69.3, 0)])
def test_published_rates_of_a_spark_are_possible(rate: float, k: int) -> None:
    assert impossible_rate(rate, ceiling_of(bandwidth_gb_s=273, gb_per_token=3, k=k)) is None


def test_the_reason_has_a_sentence() -> None:
    assert SENTENCES[IMPOSSIBLE_RATE] == (
        "The rate is above what the memory's bandwidth allows, so tokens were counted or timed wrongly; "
        "look for a parser or proxy that sends them in lumps, or for hardware figures that are not this "
        "machine's."
    )
