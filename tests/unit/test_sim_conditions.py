from __future__ import annotations

import math
from statistics import stdev

import pytest

from pytest_sparkperf.sim.conditions import Conditions, ConditionSettings, launch_factor


def taken(
    settings: ConditionSettings, steps: int, *, cost_s: float = 0.01, idle_s: float = 0.0
) -> list[float]:
    conditions, at_s, found = Conditions(settings), 0.0, []
    for _ in range(steps):
        found.append(conditions.scaled_s(cost_s, at_s))
        at_s += found[-1] + idle_s
    return found


def test_steady_conditions_change_nothing() -> None:
    assert taken(ConditionSettings(), 3) == [0.01] * 3


def test_noise_has_its_spread() -> None:
    found = taken(ConditionSettings(noise=0.02), 2000)

    assert stdev(found) / 0.01 == pytest.approx(0.02, rel=0.1)


def test_a_share_of_steps_takes_eight_times_as_long() -> None:
    found = taken(ConditionSettings(outliers=0.05), 4000)

    assert set(found) == {0.01, 0.08}
    # Standard error of the share: 0.0034.
    assert found.count(0.08) / 4000 == pytest.approx(0.05, abs=0.014)


def test_a_machine_under_load_gets_slower_by_its_heat() -> None:
    found = taken(ConditionSettings(heat=0.06, heat_s=1.0), 1000)

    assert found[0] == 0.01
    assert found[-1] == pytest.approx(0.0106, rel=0.001)
    assert found == sorted(found)


def test_it_cools_down_while_idle() -> None:
    settings = ConditionSettings(heat=0.06, heat_s=1.0)

    assert taken(settings, 1000, idle_s=10.0)[-1] == pytest.approx(0.01, rel=0.001)


def test_each_start_has_its_own_luck() -> None:
    drawn = [math.log(launch_factor(0.03, seed)) for seed in range(400)]

    assert stdev(drawn) == pytest.approx(0.03, rel=0.15)
    assert launch_factor(0.0, None) == 1.0
