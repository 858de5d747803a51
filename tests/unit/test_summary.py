from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sparkperf.core.claim import log_speed
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.summary import Baseline, baseline_of, summarize, theil_sen

PROMPTS = (0, 1, 2, 3)
EXAMPLES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "statistics" / "examples.json").read_text(encoding="utf-8")
)

small = st.floats(-0.2, 0.2)
windows = st.lists(st.lists(small, min_size=4, max_size=4), min_size=2, max_size=12)


def logs(rounds: list[list[float]]) -> list[list[float]]:
    return [[math.log(value) for value in row] for row in rounds]


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["name"] for example in EXAMPLES])
def test_worked_examples(example: dict[str, Any]) -> None:
    expected = example["expect"]

    summary = summarize(logs(example["rounds"]), example["prompts"])

    assert summary.sd == pytest.approx(expected["sd"], rel=1e-9)
    assert summary.clamped == expected["clamped"]


def test_a_stalled_request_is_pulled_back_and_counted() -> None:
    rounds = [[118.0, 101.0, 97.5, 109.2], [117.1, 102.2, 61.0, 108.1], [118.9, 100.6, 97.1, 109.9]]
    calm = [row[:] for row in rounds]
    calm[1][2] = 97.4

    disturbed, undisturbed = summarize(logs(rounds), PROMPTS), summarize(logs(calm), PROMPTS)

    assert (disturbed.clamped_requests, disturbed.requests) == (1, 12)
    assert undisturbed.clamped_requests == 0
    assert disturbed.theta == pytest.approx(undisturbed.theta, abs=0.005)


@pytest.mark.parametrize("prompts", [(0,), (0, 0), (0, 1)])
def test_one_or_two_bursts_make_a_round(prompts: tuple[int, ...]) -> None:
    rounds = [[math.log(1000 + 4 * r + c) for c in range(len(prompts))] for r in range(4)]

    summary = summarize(rounds, prompts)

    assert math.exp(summary.theta) == pytest.approx(1006, abs=1)
    assert summary.requests == 4 * len(prompts)


def test_a_prompt_that_is_sent_twice_has_one_median() -> None:
    rounds = [[0.0, 1.0, 0.02, 1.02], [0.01, 1.01, 0.03, 1.03]]

    assert summarize(rounds, (0, 1, 0, 1)).theta == pytest.approx(0.515)


def test_the_prior_carries_the_spread_of_three_calm_rounds() -> None:
    summary = summarize([[0.0] * 4] * 3, PROMPTS)

    assert summary.sd == pytest.approx(math.sqrt(3 * 0.01**2 / 5))
    assert summary.se == pytest.approx(summary.sd / math.sqrt(3))


def test_calibrated_constants_replace_the_prior() -> None:
    summary = summarize([[0.0] * 4] * 3, PROMPTS, Constants(round_sd=0.0002, measured=True))

    assert summary.sd == pytest.approx(math.sqrt(3 * 0.0002**2 / 5))


def test_drift_is_the_change_over_the_window() -> None:
    rounds = [[0.002 * r + c for c in range(4)] for r in range(6)]

    assert summarize(rounds, PROMPTS).drift == pytest.approx(0.01)


def test_theil_sen_ignores_one_wild_value() -> None:
    assert theil_sen([0.0, 1.0, 2.0, 50.0, 4.0, 5.0]) == pytest.approx(1.0)


@given(windows, st.floats(-3, 3))
def test_scaling_all_rates_moves_the_estimate_and_nothing_else(
    rounds: list[list[float]], factor: float
) -> None:
    scaled = [[value + factor for value in row] for row in rounds]

    before, after = summarize(rounds, PROMPTS), summarize(scaled, PROMPTS)

    assert after.theta == pytest.approx(before.theta + factor, abs=1e-9)
    assert after.sd == pytest.approx(before.sd, abs=1e-9)


@settings(max_examples=50)
@given(windows, st.randoms(use_true_random=False))
def test_the_order_of_prompts_within_a_round_does_not_matter(
    rounds: list[list[float]], shuffler: random.Random
) -> None:
    order = list(range(4))
    shuffler.shuffle(order)
    shuffled = [[row[cell] for cell in order] for row in rounds]

    before, after = summarize(rounds, PROMPTS), summarize(shuffled, [PROMPTS[cell] for cell in order])

    assert after.theta == pytest.approx(before.theta, abs=1e-12)
    assert after.sd == pytest.approx(before.sd, abs=1e-12)
    assert after.clamped_requests == before.clamped_requests


@given(windows)
def test_a_latency_is_the_mirror_of_a_rate(rounds: list[list[float]]) -> None:
    tpot_ms = [[1000 / math.exp(value) for value in row] for row in rounds]
    mirrored = [[log_speed("tpot_ms", value) or 0.0 for value in row] for row in tpot_ms]

    rate, latency = summarize(rounds, PROMPTS), summarize(mirrored, PROMPTS)

    assert latency.theta + math.log(1000) == pytest.approx(rate.theta, abs=1e-9)
    assert latency.sd == pytest.approx(rate.sd, abs=1e-9)


def test_one_round_has_no_spread() -> None:
    with pytest.raises(ValueError) as refused:
        summarize([[0.0] * 4], PROMPTS)

    assert str(refused.value) == "needs at least two rounds of 4 cells, got [4]"


def test_an_incomplete_round_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        summarize([[0.0] * 4, [0.0] * 3], PROMPTS)

    assert str(refused.value) == "needs at least two rounds of 4 cells, got [4, 3]"


def test_a_baseline_blends_its_spread_with_the_prior() -> None:
    """Five published runs; their blended spread is 1.31 % at 8 degrees of freedom."""
    baseline = baseline_of("output_tok_s", [582.3, 560.3, 564.6, 564.0, 573.9])

    assert baseline.sd(ASSUMED) == pytest.approx(0.013148, abs=1e-6)
    assert baseline.df(ASSUMED) == 8
    assert baseline.se(ASSUMED) == pytest.approx(baseline.sd(ASSUMED) * math.sqrt(1.2))


def test_a_baseline_of_one_run_has_the_spread_of_the_prior() -> None:
    assert Baseline((4.6,)).sd(ASSUMED) == pytest.approx(0.01)


def test_the_temperature_of_a_baseline_is_that_of_the_runs_that_know_it() -> None:
    assert Baseline((1.0, 1.0, 1.0), (70.0, None, 74.0)).temperature_c == 72.0
    assert Baseline((1.0,), (None,)).temperature_c is None


@pytest.mark.parametrize("values", [[], [100.0, 0.0]])
def test_a_baseline_without_usable_figures_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError) as refused:
        baseline_of("decode_tok_s", values)

    assert str(refused.value) == f"a baseline of decode_tok_s needs figures above 0, got {values!r}"
