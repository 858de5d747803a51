"""What a machine did while a server was measured: samples of its GPUs and memory, judged in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from pytest_sparkperf.core.gpu import GpuState, stuck_clock_mhz
from pytest_sparkperf.core.memory import GIB, MemInfo, gib
from pytest_sparkperf.core.preflight import GpuApp

# The state is known of this GPU; others may run that slowly by design.
_STICKS = "GB10"
_BUSY = 0.9
# Held down for a moment a GPU still gives figures; for half of a pass it does not.
_THROTTLED_SHARE = 0.5
_SWAP_GROWTH = GIB // 4


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the machine; ``apps`` is None where nobody asked, ``memory`` where it does not tell."""

    gpus: tuple[GpuState, ...] = ()
    apps: tuple[GpuApp, ...] | None = None
    memory: MemInfo | None = None


def pass_fault(
    everything: Sequence[Sample], of_pass: Sequence[Sample], known: Collection[int] | None
) -> str | None:
    """Say why figures of a pass would be the machine's and not the server's; None where nothing shows that.

    ``everything`` are the samples of the measurement so far, ``known`` the processes that may use the GPU,
    None where ours cannot be told from others.
    """
    return next(
        (
            text
            for text in (_stuck(everything), _throttled(of_pass), _foreign(of_pass, known))
            if text is not None
        ),
        None,
    )


def _stuck(samples: Sequence[Sample]) -> str | None:
    for gpu in _by_gpu(samples):
        name = gpu[0].name or ""
        clock = stuck_clock_mhz(gpu) if _STICKS in name else None
        if clock is not None:
            return (
                f"{name} is stuck in a low-power state: {clock:.0f} MHz under full load, where a sound one "
                f"runs above 1,000; only pulling the machine's plug for a while was seen to cure it (this "
                f"says nothing about the server)"
            )
    return None


def _throttled(samples: Sequence[Sample]) -> str | None:
    for gpu in _by_gpu(samples):
        busy = [one for one in gpu if one.utilization is not None and one.utilization >= _BUSY]
        held = [one for one in busy if one.throttled]
        if held and len(held) >= _THROTTLED_SHARE * len(busy):
            reasons = sorted({reason for one in held for reason in one.throttled})
            return (
                f"{gpu[0].name or 'the GPU'} held its clocks down in {len(held)} of {len(busy)} samples of a "
                f"pass ({', '.join(reasons)}); let it cool down and look at its power supply"
            )
    return None


def _foreign(samples: Sequence[Sample], known: Collection[int] | None) -> str | None:
    if known is None:
        return None
    found = {app.pid: app for sample in samples for app in sample.apps or () if app.pid not in known}
    if not found:
        return None
    return (
        f"other processes used the GPU during the measurement: {', '.join(map(str, found.values()))}; end "
        f"them, or measure when they are done"
    )


def watch_notes(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Say what the machine was like, for the reader of a result."""
    return (*_gpu_notes(samples), *_memory_notes([one.memory for one in samples if one.memory is not None]))


def _gpu_notes(samples: Sequence[Sample]) -> Iterator[str]:
    for gpu in _by_gpu(samples):
        busy = [one for one in gpu if one.utilization is not None and one.utilization >= _BUSY]
        clocks = [one.sm_clock_mhz for one in busy if one.sm_clock_mhz is not None]
        power = [one.power_draw_w for one in busy if one.power_draw_w is not None]
        heat = [one.temperature_c for one in gpu if one.temperature_c is not None]
        parts = [f"{median(clocks):.0f} MHz"] if clocks else []
        parts += [f"{median(power):.0f} W"] if power else []
        parts += [f"{max(heat):.0f} C at most"] if heat else []
        if parts:
            yield f"{gpu[0].name or 'GPU'} while it was measured: {', '.join(parts)}"


def _memory_notes(found: Sequence[MemInfo]) -> Iterator[str]:
    if not found:
        return
    peak = max(one.total - one.available for one in found)
    yield f"memory in use on this machine while it was measured: {gib(peak)} of {gib(found[0].total)} at most"
    grown = found[-1].swap_used - found[0].swap_used
    if grown >= _SWAP_GROWTH:
        least = min(one.available for one in found)
        yield (
            f"swap in use grew by {gib(grown)} while it was measured, with {gib(least)} of memory available "
            f"at the least: parts of the server may have been read from disk"
        )


def _by_gpu(samples: Sequence[Sample]) -> list[list[GpuState]]:
    """Return the samples of each GPU that every look showed."""
    looks = [one.gpus for one in samples if one.gpus]
    count = min(map(len, looks), default=0)
    return [[look[index] for look in looks] for index in range(count)]
