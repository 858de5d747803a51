"""Plugin tests run pytest on small suites, against simulators that are shared by the whole session."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from simulator_process import StartSimulator

# Steps shorter than a GB10's, since the suites here are about outcomes, not about figures; but not so short
# that other load on a test machine makes a measurement unsteady.
FAST = ("--slowdown", "0.4", "--jit-s", "0")
# pytest-asyncio warns where this is not set, which is not what these suites are about.
QUIET_ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")


@dataclass(frozen=True, slots=True)
class Suite:
    """Runs pytest on files in a folder of its own."""

    pytester: pytest.Pytester
    url: str

    def run(self, *arguments: str, attach: bool = True) -> pytest.RunResult:
        """Run pytest in a process of its own; ``attach`` gives it the fast simulator."""
        urls = ("--sparkperf-url", self.url) if attach else ()
        return self.pytester.runpytest_subprocess(
            "--sparkperf", *urls, "-p", "no:cacheprovider", *QUIET_ASYNCIO, *arguments
        )


@pytest.fixture
def suite(pytester: pytest.Pytester, simulator: StartSimulator, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.delenv("CI", raising=False)
    return Suite(pytester, simulator(*FAST).url)
