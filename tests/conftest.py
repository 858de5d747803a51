"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

# httpx loads it at its first request. Were that within a test that uses pytester, it would be forgotten
# afterwards and loaded anew, and httpx would no longer know the exceptions it raises.
import httpcore  # noqa: F401
import pytest
from hypothesis import settings
from simulator_process import SimulatorPool, StartSimulator

# How long an example takes says nothing on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# What CI changes (no simulator unasked, no downloads) is tested where a test sets it, nowhere by accident.
os.environ.pop("CI", None)


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartSimulator]:
    """Start simulated servers by their flags; those with the same flags are one process."""
    pool = SimulatorPool(tmp_path_factory.mktemp("simulators"))
    yield pool
    pool.stop()


@pytest.fixture(scope="session", autouse=True)
def own_machine_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measuring runs of these tests lock a folder of their own, not this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKPERF_LOCK_DIR", str(tmp_path_factory.mktemp("lock")))
        yield
