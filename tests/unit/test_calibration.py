from __future__ import annotations

import csv
import math
import random
from pathlib import Path

import pytest

from pytest_sparkperf.core.calibration import (
    MIN_LAUNCH_SD,
    MIN_ROUND_SD,
    ROUND_SAFETY,
    Calibration,
    MetricSpread,
    Start,
    calibrate,
    calibration_lines,
    spread_of,
    with_plateaus_of,
)
from pytest_sparkperf.core.claim import log_speed
from pytest_sparkperf.core.constants import ASSUMED, Spread
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.heat import Mode, Thermal

TRACE = Path(__file__).parents[1] / "data" / "statistics" / "h200_trace" / "sequential.csv"
PROMPTS = (0, 1, 2, 3)
LAUNCHES = ("L1", "L2", "L3", "L4", "L5")


def noisy_starts(
    launch_sd: float, request_sd: float, *, launches: int = 5, rounds: int = 6, metric: str = "decode_tok_s"
) -> list[Start]:
    source = random.Random(3)
    starts = []
    for _ in range(launches):
        level = source.gauss(4.6, launch_sd)
        window = [[level + source.gauss(0, request_sd) for _ in PROMPTS] for _ in range(rounds)]
        starts.append(Start({metric: window}, temperature_c=source.gauss(70, 0.5)))
    return starts


def measured(spreads: dict[str, MetricSpread], plateaus: dict[str, float] | None = None) -> Calibration:
    return Calibration("2026-11-30T16:05:34Z", "qwen36 k=0", "abc", 5, 6, spreads, plateaus or {})


def h200(metric: str, *, skip: int = 1) -> list[list[list[float]]]:
    """Return the log speeds of the recorded launches, pass by pass, without the first passes."""
    with TRACE.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["phase"] == "seq"]
    starts = []
    for name in LAUNCHES:
        speeds = [log_speed(metric, float(row[metric])) for row in rows if row["launch"] == name]
        known = [speed for speed in speeds if speed is not None]
        starts.append([known[at : at + 6] for at in range(6 * skip, len(known), 6)])
    return starts


def test_five_launches_on_an_h200_give_the_published_spreads() -> None:
    decode = spread_of(h200("decode_tok_s"), range(6))

    assert round(100 * decode.launch_sd, 2) == 0.52
    assert (round(100 * decode.launch_low, 2), round(100 * decode.launch_high, 2)) == (0.31, 1.49)
    assert 0.00010 < decode.round_sd < 0.00025
    assert 0.00025 < decode.request_sd < 0.00045


def test_times_to_the_first_token_scatter_far_more_on_the_same_machine() -> None:
    first = spread_of(h200("ttft_ms"), range(6))

    assert 0.05 < first.launch_sd < 0.08
    assert 0.08 < first.request_sd < 0.16


def test_no_spread_smaller_than_its_floor_is_believed() -> None:
    constants = measured({"decode_tok_s": MetricSpread(0.0001, 0.0, 0.0, 0.0002, 0.0)}).constants()

    assert (constants.launch_sd, constants.round_sd) == (MIN_LAUNCH_SD, MIN_ROUND_SD)
    assert constants.source == "measured"


def test_a_larger_spread_is_used_as_measured_and_rounds_get_half_more() -> None:
    found = measured(
        {
            "decode_tok_s": MetricSpread(0.011, 0.0, 0.0, 0.02, 0.0),
            "ttft_ms": MetricSpread(0.09, 0.0, 0.0, 0.05, 0.0),
        }
    )

    constants = found.constants()

    assert (constants.launch_sd, constants.round_sd) == (0.011, ROUND_SAFETY * 0.02)
    assert constants.first_token == Spread(ROUND_SAFETY * 0.05, ASSUMED.first_token.run_sd, 0.09)
    assert constants.run_sd == ASSUMED.run_sd


def test_without_times_to_the_first_token_their_spreads_stay_assumed() -> None:
    found = measured({"decode_tok_s": MetricSpread(0.011, 0.0, 0.0, 0.02, 0.0)})

    assert found.constants().first_token == ASSUMED.first_token


def test_a_machine_is_measured_from_its_starts() -> None:
    starts = noisy_starts(0.02, 0.01, launches=20, rounds=12)

    found = calibrate(starts, PROMPTS, recorded_at="2026-11-30T16:05:34Z", server="x", workload="abc")

    spread = found.spreads["decode_tok_s"]
    assert 0.012 < spread.launch_sd < 0.03
    assert spread.round_sd == pytest.approx(0.005, rel=0.2)
    assert spread.request_sd == pytest.approx(0.01, rel=0.2)
    assert (found.launches, found.rounds) == (20, 12)
    assert found.plateaus_c["abc"] == pytest.approx(70, abs=0.5)


def test_a_plateau_needs_a_settled_temperature_of_every_start() -> None:
    starts = noisy_starts(0.01, 0.01)
    starts[2] = Start(starts[2].speeds, None)

    found = calibrate(starts, PROMPTS, recorded_at="2026-11-30T16:05:34Z", server="x", workload="abc")

    assert found.plateaus_c == {}


def test_a_metric_that_one_start_lacks_is_left_out() -> None:
    starts = noisy_starts(0.01, 0.01)
    both = [Start({**start.speeds, "ttft_ms": start.speeds["decode_tok_s"]}) for start in starts]
    both[1] = starts[1]

    found = calibrate(both, PROMPTS, recorded_at="2026-11-30T16:05:34Z", server="x", workload="abc")

    assert list(found.spreads) == ["decode_tok_s"]


def test_too_few_starts_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        calibrate(noisy_starts(0.01, 0.01, launches=4), PROMPTS, recorded_at="", server="", workload="")

    assert str(caught.value) == (
        "4 starts say too little about how far starts lie apart: calibrate with at least 5"
    )


def test_starts_without_decode_rates_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        calibrate(noisy_starts(0.01, 0.01, metric="ttft_ms"), PROMPTS, recorded_at="", server="", workload="")

    assert str(caught.value) == (
        "decode_tok_s was not measured in every start, so nothing can be calibrated: use a load of at least "
        "2 output tokens on a server that streams"
    )


@pytest.mark.parametrize(
    ("workload", "mode", "expected"),
    [
        ("abc", "soak", Thermal("plateau", 71.0)),
        ("other", "soak", Thermal("soak")),
        ("abc", "none", Thermal("none")),
        ("abc", "assumed", Thermal("assumed")),
    ],
)
def test_a_plateau_serves_its_own_workload_where_a_thermometer_can_be_read(
    workload: str, mode: Mode, expected: Thermal
) -> None:
    assert measured({}, {"abc": 71.0}).thermal(workload, mode) == expected


def test_the_plateaus_of_other_workloads_are_kept() -> None:
    before = measured({}, {"abc": 60.0, "burst": 75.0})

    assert with_plateaus_of(measured({}, {"abc": 71.0}), before).plateaus_c == {"abc": 71.0, "burst": 75.0}
    assert with_plateaus_of(measured({}, {"abc": 71.0}), None).plateaus_c == {"abc": 71.0}


@pytest.mark.parametrize(
    ("plateaus", "line"),
    [
        ({"abc": 71.4}, "the GPU settles at 71 C under this load"),
        ({}, "the temperature was not read, or did not settle: no plateau"),
    ],
)
def test_what_was_measured_is_said_in_words(plateaus: dict[str, float], line: str) -> None:
    found = measured(
        {
            "decode_tok_s": MetricSpread(0.0052, 0.0031, 0.0149, 0.00015, 0.00035),
            "ttft_ms": MetricSpread(0.064, 0.038, 0.18, 0.05, 0.12),
        },
        plateaus,
    )

    assert "\n".join(calibration_lines(found)) == (
        "5 starts of qwen36 k=0, 6 rounds each:\n"
        "  decode_tok_s: between starts 0.52 % (95 % interval 0.31 % to 1.5 %), between rounds 0.015 %, "
        "between requests 0.035 %\n"
        "  ttft_ms: between starts 6.4 % (95 % interval 3.8 % to 18 %), between rounds 5 %, "
        "between requests 12 %\n"
        f"{line}\n"
        "verdicts will use launch_sd 0.52 % and 0.4 % for a round "
        "(times to the first token: 6.4 % and 7.5 %)"
    )


def test_a_launch_spread_that_is_measured_makes_an_ab_wider_or_narrower() -> None:
    wide = measured({"decode_tok_s": MetricSpread(0.012, 0.0, 0.0, 0.01, 0.0)}).constants()

    assert wide.of("decode_tok_s").launch_sd == 0.012
    assert math.isclose(ASSUMED.of("decode_tok_s").launch_sd, 0.006)
