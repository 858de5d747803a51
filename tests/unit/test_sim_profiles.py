"""Each simulated machine gives the figures that were published for it, through the engine itself."""

from __future__ import annotations

from functools import lru_cache

import pytest

from pytest_sparkperf.sim.profile import conditional
from pytest_sparkperf.sim.profiles import PROFILES
from pytest_sparkperf.sim.published import POINTS, Point, simulated
from pytest_sparkperf.sim.rehearsal import Figures, Shape, offered_prompt

rehearsed = lru_cache(maxsize=None)(lambda profile, shape: simulated(PROFILES[profile], shape))


def label(point: Point) -> str:
    shape = point.shape
    lengths = f"{shape.prompt_tokens}/{shape.output_tokens}"
    return f"{point.profile} {point.metric} {lengths} x{shape.streams} k{shape.k}"


@pytest.mark.parametrize("point", POINTS, ids=label)
def test_a_published_figure_is_measured_back(point: Point) -> None:
    figures: Figures = rehearsed(point.profile, point.shape)

    assert getattr(figures, point.metric) == pytest.approx(point.value, rel=point.spread)


def test_each_profile_but_the_joint_fit_has_points_of_its_own() -> None:
    assert set(PROFILES) == {"gb10-nvfp4"} | {point.profile for point in POINTS}


def test_a_single_stream_peaks_at_three_drafts() -> None:
    shapes = [point.shape for point in POINTS if point.profile == "gb10-fast"]
    sweep = {shape.k: shape for shape in shapes if shape.prompt_tokens == 2048}
    rates = {k: rehearsed("gb10-fast", sweep[k]).decode_tok_s for k in range(5)}

    assert rates[0] < rates[1] < rates[2] < rates[3] > rates[4]


def test_a_warm_prompt_starts_sooner() -> None:
    cold, warm = (
        rehearsed("gb10-nvfp4", Shape(4000, 16, streams=2, requests=2, warm=warm)) for warm in (False, True)
    )

    assert warm.ttft_s < 0.3 * cold.ttft_s


def test_a_cold_start_compiles() -> None:
    warm, cold = (rehearsed("gb10-report", Shape(100, 16, k=3, cold=cold)) for cold in (False, True))

    assert cold.duration_s - warm.duration_s == pytest.approx(3 * PROFILES["gb10-report"].jit_s, rel=0.01)


def test_no_two_prompts_of_a_load_begin_alike() -> None:
    starts = [offered_prompt(number, 8000)[0] for number in range(16)]

    assert len(set(starts)) == 16
    assert max(offered_prompt(15, 8000, draw=2)) < 128_000
    with pytest.raises(ValueError, match=r"there are 16 different prompts of 8000 tokens, no 17\."):
        offered_prompt(16, 8000)


def test_shares_by_position_become_conditional_ones() -> None:
    assert conditional((0.9, 0.72, 0.36)) == pytest.approx((0.9, 0.8, 0.5))
