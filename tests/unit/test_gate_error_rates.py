"""A short run of benchmarks/gate_error_rates.py: the shipped sampler on machines whose truth is known.

Seeds are fixed, so every run gives the same counts; docs/statistics.md has the table of 4,000 repetitions.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.proportion import clopper_pearson

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
REPETITIONS = 200
CALM = ("quiet", "drift", "autocorrelation 0.5", "outliers 5 %", "cold start")


@pytest.fixture(scope="module")
def rates() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("gate_error_rates")
    sys.path.remove(str(BENCHMARKS))


def may_be_at_most(share: float, seen: float) -> bool:
    """Is a rate of ``share`` consistent with what 200 runs showed, at 1 in 1,000?"""
    return clopper_pearson(round(seen * REPETITIONS), REPETITIONS, 0.001)[0] <= share


@pytest.mark.parametrize("scenario", CALM)
@pytest.mark.parametrize(
    ("table", "rule", "change"),
    [(0, "sparkperf, tolerance 0.02", 0.04), (0, "sparkperf, tolerance 0", 0.04), (1, "sparkperf", 0.0)],
)
def test_an_unchanged_server_is_not_failed_and_nearly_always_passes(
    rates: ModuleType, scenario: str, table: int, rule: str, change: float
) -> None:
    _, cell = rates.measure((table, rule, scenario, change, REPETITIONS), ASSUMED)

    assert may_be_at_most(0.01, cell.fail)
    assert cell.passed >= 0.97


@pytest.mark.parametrize("scenario", CALM)
def test_an_ab_of_a_server_with_itself_does_not_fail(rates: ModuleType, scenario: str) -> None:
    _, cell = rates.measure((2, "sparkperf", scenario, 0.0, REPETITIONS), ASSUMED)

    assert may_be_at_most(0.01, cell.fail)
    assert cell.passed >= 0.8


@pytest.mark.parametrize("scenario", CALM)
@pytest.mark.parametrize(
    ("table", "rule", "found"),
    [
        (0, "sparkperf, tolerance 0.02", 0.98),
        (0, "sparkperf, tolerance 0", 0.98),
        (1, "sparkperf", 0.75),
        (2, "sparkperf", 0.98),
    ],
)
def test_a_loss_of_five_percent_does_not_pass(
    rates: ModuleType, scenario: str, table: int, rule: str, found: float
) -> None:
    _, cell = rates.measure((table, rule, scenario, -0.05, REPETITIONS), ASSUMED)

    assert may_be_at_most(0.015, cell.passed)
    assert cell.fail >= found


def test_every_rule_of_every_table_is_printed(rates: ModuleType) -> None:
    todo = list(rates.jobs(ASSUMED, 1))
    text = rates.render(ASSUMED, dict(rates.measure(job, ASSUMED) for job in todo))

    assert len([line for line in text.splitlines() if line.startswith("| quiet |")]) == 13
    assert "| quiet | sparkperf, tolerance 0.02 | 0.0 / 0.0 / 100.0; " in text
