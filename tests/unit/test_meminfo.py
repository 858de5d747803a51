from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sparkperf.adapters.meminfo import MemoryReader, MemoryReturn, await_memory
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.core.memory import GIB

DATA = Path(__file__).parents[1] / "data" / "machine"
TOTAL_KB = 127_600_000


@dataclass
class Clock:
    """A clock that a sleep moves; each sleep may change what the machine shows."""

    root: Path
    available_kb: Iterator[int]
    step_s: float
    now: float = field(default=0.0)

    def show(self) -> None:
        kb = next(self.available_kb)
        text = f"MemTotal: {TOTAL_KB} kB\nMemFree: 1 kB\nMemAvailable: {kb} kB\n"
        (self.root / "proc/meminfo").write_text(text)

    def sleep(self, _: float) -> None:
        self.now += self.step_s
        self.show()


def wait(tmp_path: Path, kb: list[int], step_s: float, before: int) -> MemoryReturn:
    (tmp_path / "proc").mkdir()
    clock = Clock(tmp_path, iter(kb), step_s)
    clock.show()
    outside = Surroundings(clock=lambda: clock.now, sleep=clock.sleep)
    return await_memory(before, MemoryReader(tmp_path), outside)


def test_memory_is_waited_for_until_it_is_back(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (DATA / "D07_meminfo_after_stop.jsonl").read_text().splitlines()]

    found = wait(tmp_path, [row["MemAvailable_kB"] for row in rows], 10, 122_700_000 * 1024)

    assert found == MemoryReturn(0, 40)


def test_memory_that_moves_no_more_is_missing(tmp_path: Path) -> None:
    before = 122_700_000 * 1024
    found = wait(tmp_path, [20_000_000, *[60_000_000] * 200], 1, before)

    assert found == MemoryReturn(before - 60_000_000 * 1024, 11)


def test_a_wait_for_memory_ends_at_its_bound(tmp_path: Path) -> None:
    found = wait(tmp_path, [(n % 2 + 1) * 10_000_000 for n in range(500)], 1, 100 * GIB)

    assert found.waited_s == 120


def test_a_machine_that_shows_no_memory_is_not_waited_for(tmp_path: Path) -> None:
    reader = MemoryReader(tmp_path)

    assert (reader.read(), reader.available()) == (None, None)
    assert await_memory(GIB, reader, Surroundings(clock=lambda: 0.0)) == MemoryReturn(0, 0)
