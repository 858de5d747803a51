from __future__ import annotations

import pytest

from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.heat import (
    NO_ALLOWANCE,
    HeatWatch,
    Mode,
    Thermal,
    allowance,
    assumed_temperature_c,
)


def watch(thermal: Thermal, *readings: tuple[float, float | None]) -> HeatWatch:
    found = HeatWatch(thermal, ASSUMED)
    for at_s, temperature_c in readings:
        found.read(temperature_c, at_s)
    return found


def test_a_machine_35_degrees_cold_is_allowed_the_observed_gain_and_half_more() -> None:
    assert allowance(43.0, 80.0, ASSUMED).cold == pytest.approx(0.09)


@pytest.mark.parametrize("temperature_c", [79.0, 80.0, 81.0])
def test_one_degree_is_free(temperature_c: float) -> None:
    assert not allowance(temperature_c, 80.0, ASSUMED).open


@pytest.mark.parametrize(("gap_c", "degrees"), [(2, 1), (3, 2), (4, 3), (5, 4.5), (6, 6), (37, 52.5)])
def test_a_gap_costs_its_published_change_and_a_larger_one_half_as_much_again(
    gap_c: float, degrees: float
) -> None:
    assert allowance(80.0 - gap_c, 80.0, ASSUMED).cold == pytest.approx(degrees * 0.06 / 35)


def test_a_hotter_machine_is_allowed_for_on_the_other_side() -> None:
    hot = allowance(90.0, 80.0, ASSUMED)

    assert (hot.cold, hot.gap_c) == (0.0, -10.0)
    assert hot.hot == pytest.approx(8 * 0.09 / 35)


@pytest.mark.parametrize(("temperature_c", "reference_c"), [(None, 80.0), (70.0, None), (None, None)])
def test_nothing_is_allowed_without_both_temperatures(
    temperature_c: float | None, reference_c: float | None
) -> None:
    assert allowance(temperature_c, reference_c, ASSUMED) == NO_ALLOWANCE


def test_the_assumed_session_begins_stone_cold() -> None:
    assert assumed_temperature_c(0.0, ASSUMED) == -35.0
    assert assumed_temperature_c(1000.0, ASSUMED) == pytest.approx(-0.24, abs=0.01)


def test_the_simulator_has_no_heat() -> None:
    cold = watch(Thermal("none"), (10.0, 40.0), (80.0, 60.0))

    assert cold.allowance(80.0) == NO_ALLOWANCE
    assert cold.rise_c(0) == 0.0


def test_the_temperature_of_a_baseline_is_the_reference_where_there_is_one() -> None:
    found = watch(Thermal("plateau", 80.0), (10.0, 60.0))

    assert found.allowance(None).gap_c == 20.0
    assert found.allowance(70.0).gap_c == 10.0


@pytest.mark.parametrize(
    ("readings", "settled"),
    [
        ([(0.0, 70.0), (59.0, 70.0)], False),
        ([(0.0, 70.0), (60.0, 71.0)], True),
        ([(0.0, 70.0), (60.0, 72.0)], False),
        ([(0.0, 60.0), (30.0, 70.0), (95.0, 71.0)], True),
        ([(0.0, 70.0), (61.0, 65.0)], True),
    ],
)
def test_a_gpu_has_soaked_when_it_rises_by_a_degree_a_minute(
    readings: list[tuple[float, float | None]], settled: bool
) -> None:
    assert watch(Thermal("soak"), *readings).settled() is settled


@pytest.mark.parametrize("thermal", [Thermal("plateau", 80.0), Thermal("soak")])
def test_a_missing_reading_turns_to_the_assumed_cold_start(thermal: Thermal) -> None:
    found = watch(thermal, (0.0, 79.0), (100.0, None), (200.0, 80.0))

    assert found.unreadable
    assert found.allowance(None).gap_c == pytest.approx(35 / 2.71828, abs=0.01)


@pytest.mark.parametrize(("mode", "plateau_c"), [("plateau", None), ("soak", 80.0), ("none", 80.0)])
def test_a_plateau_goes_with_its_mode_only(mode: Mode, plateau_c: float | None) -> None:
    with pytest.raises(ValueError) as refused:
        Thermal(mode, plateau_c)

    assert str(refused.value) == (
        "plateau_c goes with mode 'plateau' and no other, "
        f"got Thermal(mode={mode!r}, plateau_c={plateau_c!r})"
    )
