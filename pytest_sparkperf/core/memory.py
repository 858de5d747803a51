"""Memory of a machine: what is available, how much must stay so, and when a stopped server gave its back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GIB = 1 << 30
_KIB = 1024
# 24 GiB on a DGX Spark, sold as 128 GB, whose kernel sees 121.7 GiB: below that its driver fails and the host
# stalls within seconds, while MemAvailable still shows gigabytes.
_SPARK_FLOOR, _SPARK_TOTAL = 24 * GIB, int(121.69 * GIB)
# With memory of its own on the GPU the host only needs to stay alive.
_HOST_FLOOR, _HOST_SHARE = 2 * GIB, 0.05
# Other programs take and give memory all the time.
_RETURN_SHARE, _RETURN_LEAST = 0.02, GIB
_STILL_SHARE, _STILL_S = 0.005, 10.0


@dataclass(frozen=True, slots=True)
class MemInfo:
    """What ``/proc/meminfo`` says, in bytes; ``available`` counts the page cache that can be given up."""

    total: int
    free: int
    available: int
    cached: int = 0
    swap_total: int = 0
    swap_free: int = 0

    @property
    def swap_used(self) -> int:
        """Swap in use, in bytes."""
        return self.swap_total - self.swap_free


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Available memory (bytes) at a time (s)."""

    at_s: float
    available: int


def parse_meminfo(text: str) -> MemInfo | None:
    """Read ``/proc/meminfo``; None when the three figures that matter are not all there."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name.strip()] = int(words[0]) * _KIB
    try:
        needed = (found["MemTotal"], found["MemFree"], found["MemAvailable"])
    except KeyError:
        return None
    return MemInfo(*needed, found.get("Cached", 0), found.get("SwapTotal", 0), found.get("SwapFree", 0))


def start_floor(total: int, *, unified: bool) -> int:
    """Return how much memory (bytes) must stay available while a server starts.

    Where CPU and GPU share memory that is 24 GiB on a DGX Spark, and as much in proportion elsewhere.
    """
    if unified:
        return total * _SPARK_FLOOR // _SPARK_TOTAL
    return min(_HOST_FLOOR, int(total * _HOST_SHARE))


def return_bound(total: int) -> int:
    """Return how many bytes may be missing after a stop: 2 % of the machine's, 1 GiB at least."""
    return max(_RETURN_LEAST, int(total * _RETURN_SHARE))


def is_returned(samples: Sequence[MemorySample], before: int, total: int) -> bool:
    """Say whether a stopped server's memory is back: within the bound of ``before`` its start."""
    return bool(samples) and samples[-1].available >= before - return_bound(total)


def is_still(samples: Sequence[MemorySample], total: int) -> bool:
    """Say whether memory has not moved for 10 s: then no more is coming back."""
    if not samples:
        return False
    latest = samples[-1]
    recent = [one.available for one in samples if one.at_s >= latest.at_s - _STILL_S]
    return latest.at_s - samples[0].at_s >= _STILL_S and max(recent) - min(recent) <= total * _STILL_SHARE


def gib(size: int) -> str:
    """Return a size in bytes for a message, ``101.9 GiB``."""
    return f"{size / GIB:.1f} GiB"
