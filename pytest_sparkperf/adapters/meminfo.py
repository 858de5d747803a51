"""Reads this machine's memory, and waits until a stopped server has given its back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.core.memory import (
    MemInfo,
    MemorySample,
    is_returned,
    is_still,
    parse_meminfo,
)

# The driver of a GB10 was seen to take 40 s for 100 GiB.
RETURN_TIMEOUT_S = 120.0
_SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """Reads ``/proc/meminfo`` below a root."""

    root: Path = Path("/")

    def read(self) -> MemInfo | None:
        """Return what it says; None where it says nothing."""
        try:
            return parse_meminfo((self.root / "proc/meminfo").read_text("ascii", "replace"))
        except OSError:
            return None

    def available(self) -> int | None:
        """Return the available memory in bytes."""
        found = self.read()
        return None if found is None else found.available


@dataclass(frozen=True, slots=True)
class MemoryReturn:
    """How a wait for memory ended: ``missing`` bytes after ``waited_s``, 0 when all came back."""

    missing: int
    waited_s: float


def await_memory(
    before: int, reader: MemoryReader, outside: Surroundings, timeout_s: float = RETURN_TIMEOUT_S
) -> MemoryReturn:
    """Wait until memory is back at ``before`` (bytes) within its bound, or moves no more, or time is up."""
    started_s = outside.clock()
    samples: list[MemorySample] = []
    while (found := reader.read()) is not None:
        now = outside.clock()
        samples.append(MemorySample(now - started_s, found.available))
        if is_returned(samples, before, found.total):
            return MemoryReturn(0, now - started_s)
        if is_still(samples, found.total) or now - started_s >= timeout_s:
            return MemoryReturn(before - found.available, now - started_s)
        outside.sleep(_SAMPLE_S)
    return MemoryReturn(0, outside.clock() - started_s)
