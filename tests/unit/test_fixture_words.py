"""What fixtures make of their keywords: the mark's server, workloads of the run, files beside the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import GateSpec, parse_mark
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.targets import Config
from pytest_sparkperf.fixtures import Compare, Measure
from pytest_sparkperf.session import Run

FOLDER = Path("/suite/tests")


@dataclass
class Runs:
    """A run that measures nothing and keeps what it was asked for."""

    config: Config = field(default_factory=lambda: Config(workloads={"burst": FrozenMap({"concurrency": 8})}))
    asked: list[GateSpec] = field(default_factory=list)

    def measure(self, spec: GateSpec, test: str, *, gates: int) -> Result:
        assert (test, gates) == ("test_x.py::test_x", 1)
        self.asked.append(spec)
        return Result()


def test_a_measurement_takes_workloads_and_files() -> None:
    run = Runs()
    measure = Measure(cast("Run", run), parse_mark({"k": 3}), "test_x.py::test_x", FOLDER)

    measure(workload="burst")
    measure(dataset="own.jsonl", k=0)

    assert [(spec.k, spec.load.concurrency, spec.load.dataset) for spec in run.asked] == [
        (3, 8, None),
        (0, 1, "/suite/tests/own.jsonl"),
    ]


def test_a_comparison_takes_workloads_and_files() -> None:
    run = Runs()
    compare = Compare(cast("Run", run), parse_mark({"k": 3}), "test_x.py::test_x", FOLDER)

    compare({"k": 0}, workload="burst")
    compare({"k": 0}, dataset="/data/s.json")

    assert [(spec.k, spec.load.concurrency, spec.load.dataset) for spec in run.asked] == [
        (3, 8, None),
        (3, 1, "/data/s.json"),
    ]
