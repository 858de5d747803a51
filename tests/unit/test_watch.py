"""What is said of a machine that was watched while a server was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.machine_watch import MachineWatch
from pytest_sparkperf.core.gpu import GpuState, parse_query
from pytest_sparkperf.core.memory import GIB, MemInfo
from pytest_sparkperf.core.preflight import GpuApp
from pytest_sparkperf.core.watch import Sample, pass_fault, watch_notes

DATA = Path(__file__).parent.parent / "data" / "machine"
SOUND = GpuState(
    "NVIDIA GB10", sm_clock_mhz=2405, utilization=0.96, power_draw_w=92.0, temperature_c=71, throttled=()
)
HOT = replace(SOUND, throttled=("software thermal slowdown",))
MEMORY = MemInfo(total=128 * GIB, free=20 * GIB, available=30 * GIB, swap_total=16 * GIB, swap_free=16 * GIB)
NO_APPS: tuple[GpuApp, ...] = ()


def looks(*gpus: GpuState, count: int = 4) -> list[Sample]:
    return [Sample(gpus, NO_APPS, MEMORY)] * count


def fault(samples: list[Sample], known: frozenset[int] | None = frozenset()) -> str | None:
    return pass_fault(samples, samples, known)


def test_a_gb10_in_its_low_power_state_is_no_regression_of_the_server() -> None:
    low = [
        replace(one, name="NVIDIA GB10")
        for one in parse_query((DATA / "E14_low_power_state.csv").read_text())
    ]

    assert fault([Sample((one,)) for one in low]) == (
        "NVIDIA GB10 is stuck in a low-power state: 799 MHz under full load, where a sound one runs above "
        "1,000; only pulling the machine's plug for a while was seen to cure it (this says nothing about the "
        "server)"
    )
    assert fault([Sample((replace(one, name="Orin"),)) for one in low]) is None, "known of the GB10 alone"


def test_a_sound_machine_has_no_fault() -> None:
    assert fault(looks(SOUND)) is None
    assert fault([]) is None


def test_clocks_held_down_for_half_a_pass_are_a_fault_and_for_a_moment_are_none() -> None:
    assert fault(looks(HOT, count=2) + looks(SOUND, count=2)) == (
        "NVIDIA GB10 held its clocks down in 2 of 4 samples of a pass (software thermal slowdown); let it "
        "cool down and look at its power supply"
    )
    assert fault(looks(HOT, count=1) + looks(SOUND, count=2)) is None
    cool = looks(SOUND)
    assert pass_fault(looks(HOT) + cool, cool, frozenset()) is None, "an earlier pass was judged already"


def test_processes_of_others_on_the_gpu_are_named() -> None:
    samples = [Sample((SOUND,), (GpuApp(7, "ours", GIB),)), Sample((SOUND,), (GpuApp(9, "/usr/bin/train"),))]

    assert fault(samples, frozenset({7})) == (
        "other processes used the GPU during the measurement: pid 9 (/usr/bin/train); end them, or measure "
        "when they are done"
    )
    assert fault(samples, frozenset({7, 9})) is None
    assert fault(samples, None) is None, "ours cannot be told from others"


USED = "memory in use on this machine while it was measured: 98.0 GiB of 128.0 GiB at most"


def test_clocks_power_heat_and_memory_are_told() -> None:
    warm = replace(SOUND, temperature_c=74, sm_clock_mhz=2395)
    idle = GpuState("NVIDIA GB10", sm_clock_mhz=208, utilization=0.0, temperature_c=35)

    assert watch_notes([*looks(idle, count=9), *looks(SOUND, count=2), *looks(warm, count=2)]) == (
        "NVIDIA GB10 while it was measured: 2400 MHz, 92 W, 74 C at most",
        USED,
    )
    assert watch_notes([Sample((GpuState("Orin (nvgpu)"),))]) == ()


def test_growing_swap_is_told_with_the_least_memory() -> None:
    later = replace(MEMORY, swap_free=15 * GIB, available=3 * GIB)

    assert watch_notes(
        [Sample(memory=MEMORY), Sample(memory=later), Sample(memory=replace(later, available=5 * GIB))]
    ) == (
        "memory in use on this machine while it was measured: 125.0 GiB of 128.0 GiB at most",
        (
            "swap in use grew by 1.0 GiB while it was measured, with 3.0 GiB of memory available at the "
            "least: parts of the server may have been read from disk"
        ),
    )


def watch_of(gpus: Callable[[], tuple[GpuState, ...]], apps: list[tuple[GpuApp, ...]]) -> MachineWatch:
    return MachineWatch(
        gpus=gpus, apps=lambda: apps.pop(0), memory=lambda: MEMORY, own=lambda: {7}, period_s=3600.0
    )


def test_a_watch_judges_what_came_since_the_pass_began() -> None:
    before = (GpuApp(1, "desktop"),)
    apps = [before, (*before, GpuApp(7, "ours")), (*before, GpuApp(9, "other")), before]

    with watch_of(lambda: (SOUND,), apps) as watch:
        watch.begin()
        watch.look()
        assert watch.fault() is None, "who was there before was judged before"
        watch.look()
        assert "pid 9 (other)" in str(watch.fault())
        watch.begin()
        watch.look()
        assert watch.fault() is None
    assert watch.notes() == ("NVIDIA GB10 while it was measured: 2405 MHz, 92 W, 71 C at most", USED)


def test_what_was_used_before_the_first_pass_is_not_told() -> None:
    memory = iter((replace(MEMORY, available=GIB), MEMORY, MEMORY))
    watch = MachineWatch(gpus=lambda: (), apps=lambda: (), memory=lambda: next(memory), own=lambda: None)

    watch.look()
    watch.begin()
    watch.look()
    watch.begin()
    watch.look()

    assert watch.notes() == (USED,)


@pytest.mark.timeout(30)
def test_a_watch_looks_by_itself_and_ends() -> None:
    seen = 0

    def gpus() -> tuple[GpuState, ...]:
        nonlocal seen
        seen += 1
        return (SOUND,)

    watch = MachineWatch(gpus=gpus, apps=lambda: (), memory=lambda: None, own=lambda: None, period_s=0.001)
    with watch:
        while seen < 3:
            pass
    ended = seen

    assert watch.fault() is None
    assert seen == ended
