from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.core.memory import (
    GIB,
    MemInfo,
    MemorySample,
    gib,
    is_returned,
    is_still,
    parse_meminfo,
    return_bound,
    start_floor,
)

DATA = Path(__file__).parents[1] / "data" / "machine"
SPARK = int(121.69 * GIB)


def test_meminfo_is_read_in_bytes() -> None:
    text = (
        "MemTotal:       127600000 kB\nMemFree:         1000000 kB\nMemAvailable:   90000000 kB\n"
        "Cached:         85000000 kB\nSwapTotal:      16000000 kB\nSwapFree:       15000000 kB\n"
        "HugePages: 0\n"
    )

    found = parse_meminfo(text)

    assert found == MemInfo(
        *(kb * 1024 for kb in (127600000, 1000000, 90000000, 85000000, 16000000, 15000000))
    )
    assert found is not None
    assert found.swap_used == 1000000 * 1024


@pytest.mark.parametrize("text", ["", "MemTotal: 1 kB\nMemFree: 1 kB\n", "MemAvailable: many kB"])
def test_without_the_figures_that_matter_nothing_is_known(text: str) -> None:
    assert parse_meminfo(text) is None


def test_floor_of_a_start_is_24_gib_on_a_spark_and_in_proportion_elsewhere() -> None:
    assert start_floor(SPARK, unified=True) == 24 * GIB
    assert start_floor(SPARK // 2, unified=True) == pytest.approx(12 * GIB, rel=1e-6)


def test_where_the_gpu_has_its_own_memory_the_host_only_has_to_stay_alive() -> None:
    assert start_floor(512 * GIB, unified=False) == 2 * GIB
    assert start_floor(16 * GIB, unified=False) == int(0.8 * GIB)


def test_memory_after_a_stop_is_back_when_it_is_near_what_it_was_before() -> None:
    lines = (DATA / "D07_meminfo_after_stop.jsonl").read_text().splitlines()
    samples = [MemorySample(one["t"], one["MemAvailable_kB"] * 1024) for one in map(json.loads, lines)]
    before = samples[-1].available

    back = [
        samples[: n + 1][-1].at_s for n in range(len(samples)) if is_returned(samples[: n + 1], before, SPARK)
    ]

    assert back[0] == 40


def test_bound_of_the_return_is_two_percent_and_a_gibibyte_at_least() -> None:
    assert return_bound(100 * GIB) == 2 * GIB
    assert return_bound(8 * GIB) == GIB
    assert not is_returned([], 0, GIB)


def test_memory_is_still_when_it_has_not_moved_for_ten_seconds() -> None:
    moving = [MemorySample(t, t * GIB) for t in range(12)]
    still = [*moving, *(MemorySample(t, 11 * GIB) for t in range(12, 23))]

    assert not is_still([], GIB)
    assert not is_still(moving, 121 * GIB)
    assert not is_still(still[-3:], 121 * GIB)
    assert is_still(still, 121 * GIB)


def test_sizes_are_shown_in_gibibytes() -> None:
    assert gib(int(101.92 * GIB)) == "101.9 GiB"
