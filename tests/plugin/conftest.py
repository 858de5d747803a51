"""Fixtures of the tests that run pytest itself."""

from __future__ import annotations

import pytest
from simulator_process import StartSimulator
from suite_runner import Suite

# Steps shorter than a GB10's, since the suites here are about outcomes, not about figures; but not so short
# that other load on a test machine makes a measurement unsteady.
FAST = ("--slowdown", "0.4", "--jit-s", "0")


@pytest.fixture(scope="session")
def fast_url(simulator: StartSimulator) -> str:
    """The root of a simulator that all suites share; started first, so that it is no process of a suite."""
    return simulator(*FAST).url


@pytest.fixture
def suite(fast_url: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Run suites as on a developer's machine, on a terminal of 80 columns."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return Suite(pytester, fast_url)
