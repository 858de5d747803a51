"""Collects a suite with pytest, in this process, and hands over its gates; nothing is run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points

import pytest

from pytest_sparkperf.adapters.store import Files
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.plan import CollectedGate
from pytest_sparkperf.marks import GATE
from pytest_sparkperf.session import RUN

_PLUGIN = "pytest_sparkperf.plugin"


@dataclass(slots=True)
class Collector:
    """A plugin that keeps the gates of a collected session, in the order in which they would run."""

    gates: list[CollectedGate] = field(default_factory=list)
    max_resident: int | None = None
    baselines: Files | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Read every gate once the plugin has checked them all."""
        run = session.config.stash[RUN]
        self.max_resident = run.config.max_resident
        self.baselines = run.baselines
        for item in session.items:
            gate = item.stash.get(GATE, None)
            if gate is not None and gate.marked and gate.spec is not None and gate.fault is None:
                self.gates.append(CollectedGate(item.nodeid, gate.spec, run.variants(gate.spec)))


def collect_gates(arguments: Sequence[str]) -> Collector:
    """Collect what pytest would run with these arguments; raises ConfigError with pytest's own words."""
    collector = Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main(
            [*loading(), "--sparkperf", "--collect-only", "-q", *arguments], plugins=[collector]
        )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise ConfigError(f"pytest could not collect the suite:\n{said.getvalue().strip()}")
    if not collector.gates:
        raise ConfigError(
            "no test with a sparkperf mark was collected; name the files or folders that hold them, as for "
            "pytest"
        )
    return collector


def loading() -> tuple[str, ...]:
    """Return what loads the plugin by name where the package is not installed, so pytest cannot know it."""
    known = entry_points(group="pytest11", name="sparkperf")
    return () if known else ("-p", _PLUGIN)
