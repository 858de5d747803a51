"""Machines, works and records for the tests of baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_sparkperf.core.baseline import BaselineFile, Figure, Record, Work, append_record
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.hardware import Machine, seen_machine

TEST = "tests/test_speed.py::test_decode[k3]"
SPARK: Machine = seen_machine(
    [GpuState("NVIDIA GB10", capability="12.1")],
    cpu="Cortex-A725 + Cortex-X925",
    cores=20,
    architecture="aarch64",
    memory_kib=127_600_000,
)
SLUG = "gb10-1x-aarch64-20c-128g-8684"
WORK = Work("acme/m-35b", 3, "mtp", "0123456789abcdef", "minus_first_event")
EMPTY_FILE = BaselineFile(TEST, SPARK)


def record_at(
    day: int,
    value: float = 100.0,
    *,
    metric: str = "decode_tok_s",
    facts: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Record:
    """Return a run recorded on a day of November 2026."""
    return Record(
        run=f"run-{day:02}",
        recorded_at=f"2026-11-{day:02}T10:00:00Z",
        rounds=12,
        figures={metric: Figure(value, 0.0078)},
        temperature_c=61.0,
        facts=FrozenMap(facts or {"vllm": "0.24.0"}),
        **rest,
    )


def file_with(*records: Record, work: Work = WORK) -> BaselineFile:
    """Return a file of runs, recorded in this order."""
    file = EMPTY_FILE
    for record in records:
        file = append_record(file, EMPTY_FILE, work, record)
    return file
