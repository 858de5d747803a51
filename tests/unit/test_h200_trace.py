"""A recorded trace judged by the shipped code: five launches of one unchanged server on an H200.

The servers were not resident together when the trace was recorded, so a pass of an A/B takes the next six
requests of each launch; the machine shows no drift and no heat. The launches are 10 to 20 passes long, so
budgets are 8 rounds.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest

from pytest_sparkperf.core.claim import Claim, floor, log_speed, margin
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.sampling import Plan, Sampler
from pytest_sparkperf.core.summary import Baseline

TRACE = Path(__file__).parents[1] / "data" / "statistics" / "h200_trace" / "sequential.csv"
METRIC = "decode_tok_s"
PROMPTS = 6
ROUNDS = 8
LAUNCHES = ("L1", "L2", "L3", "L4", "L5")
PAIRS = tuple(permutations(LAUNCHES, 2))
SMALLEST = Constants(launch_sd=0.004)

Passes = list[list[float]]


def read_trace(metric: str) -> dict[str, Passes]:
    """Return a metric of each launch's requests, pass by pass."""
    with TRACE.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["phase"] == "seq"]
    rates = {name: [float(row[metric]) for row in rows if row["launch"] == name] for name in LAUNCHES}
    return {
        name: [found[at : at + PROMPTS] for at in range(0, len(found), PROMPTS)]
        for name, found in rates.items()
    }


TRACES = read_trace(METRIC)
# The first pass compiles kernels: 2.3 s to the first token of a cold start, 0.1 s later.
FIRST_TOKENS = {name: passes[1:] for name, passes in read_trace("ttft_ms").items()}


def replay(
    claim: Claim,
    servers: Mapping[Arm, Passes],
    *,
    slower: float = 0.0,
    constants: Constants = ASSUMED,
    runs: Baseline | None = None,
) -> Verdict:
    """Feed the sampler what the launches served, B's rates lowered by a share."""
    plan = Plan(tuple(range(PROMPTS)), paired="A" in servers, max_rounds=ROUNDS, constants=constants)
    sampler = Sampler(plan, [claim], {METRIC: runs} if runs else None)
    while (step := sampler.next_pass()) is not None:
        sampler.add(
            {
                (cell, arm): {
                    claim.metric: servers[arm][step.index][cell] * (1 - slower if arm == "B" else 1)
                }
                for cell, arm in step.order
            }
        )
    (verdict,) = sampler.outcome
    return verdict


def all_pairs(slower: float, constants: Constants = ASSUMED) -> Counter[str]:
    """Judge every ordered pair of launches with ``max_slowdown=0.03``, B slowed by a share."""
    claim = margin(METRIC, 0.03, paired=True)
    return Counter(
        replay(claim, {"A": TRACES[a], "B": TRACES[b]}, slower=slower, constants=constants).outcome
        for a, b in PAIRS
    )


def rest_of(launch: str) -> Baseline:
    """Return a baseline of the other four launches, a run being the mean of its passes after the first."""
    others = [TRACES[name][1:] for name in LAUNCHES if name != launch]
    thetas = [
        fmean(speed for row in passes for rate in row if (speed := log_speed(METRIC, rate)) is not None)
        for passes in others
    ]
    return Baseline(tuple(thetas))


@pytest.mark.parametrize("constants", [ASSUMED, SMALLEST], ids=["0.006", "0.004"])
def test_launches_of_one_server_are_not_failed_against_each_other(constants: Constants) -> None:
    outcomes = all_pairs(0.0, constants)

    assert outcomes["FAIL"] == 0
    assert outcomes["PASS"] >= 18


@pytest.mark.parametrize("constants", [ASSUMED, SMALLEST], ids=["0.006", "0.004"])
def test_a_loss_of_five_percent_between_launches_fails(constants: Constants) -> None:
    outcomes = all_pairs(0.05, constants)

    assert outcomes["FAIL"] >= 18
    assert outcomes["PASS"] == 0


def test_a_loss_of_one_percent_between_launches_is_no_regression() -> None:
    assert all_pairs(0.01)["FAIL"] == 0


@pytest.mark.parametrize("max_slowdown", [0.1, 0.2, 0.3])
def test_times_to_the_first_token_of_one_server_are_not_failed_either(max_slowdown: float) -> None:
    claim = margin("ttft_ms", max_slowdown, paired=True)

    outcomes = Counter(replay(claim, {"A": FIRST_TOKENS[a], "B": FIRST_TOKENS[b]}).outcome for a, b in PAIRS)

    assert outcomes["FAIL"] == 0


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize(("slower", "outcome"), [(0.0, "PASS"), (0.05, "FAIL")])
def test_a_launch_is_judged_right_against_a_baseline_of_the_others(
    launch: str, slower: float, outcome: str
) -> None:
    claim = margin(METRIC, 0.05, paired=False)

    verdict = replay(claim, {"B": TRACES[launch]}, slower=slower, runs=rest_of(launch))

    assert verdict.outcome == outcome


@pytest.mark.parametrize(("limit", "outcome"), [(235.0, "PASS"), (250.0, "FAIL")])
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_limit_three_percent_away_is_decided_on_every_launch(
    launch: str, limit: float, outcome: str
) -> None:
    assert replay(floor("min_decode", METRIC, limit), {"B": TRACES[launch]}).outcome == outcome
