"""What a run shows besides its verdicts: whether it was steady, and what a baseline may keep of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pytest_sparkperf.core.acceptance import ACCEPTANCE_METRICS
from pytest_sparkperf.core.baseline import Figure, figure_of, rounded
from pytest_sparkperf.core.flags import count_flags
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.gpu import GpuState, stuck_clock_mhz
from pytest_sparkperf.core.keywords import COMPARABLE
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.sampling import Sampler

# What may be compared, and how well drafts were accepted: a change of speed often comes from there.
KEPT = (*COMPARABLE, *ACCEPTANCE_METRICS)


@dataclass(frozen=True, slots=True)
class Moment:
    """The GPUs at the end of a pass, ``at_s`` seconds after the load began."""

    at_s: float
    gpus: tuple[GpuState, ...] = ()

    @property
    def temperature_c(self) -> float | None:
        """The temperature of the hottest GPU; None without a thermometer."""
        return hottest_c(self.gpus)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one run brought over its rounds.

    ``figures`` by metric, those that could be measured. ``thermal`` is the thermal fingerprint. ``rise_c``:
    how far the GPU warmed from the first round to the last; None without a thermometer. ``throttled``: why
    the clocks were held down. ``stuck_mhz``: the clock of a GPU in a low-power state. ``gpus``: as they were
    at the end. ``flags``: shares of flagged requests.
    """

    rounds: int = 0
    figures: Mapping[str, Figure] = EMPTY
    temperature_c: float | None = None
    thermal: FrozenMap = EMPTY
    rise_c: float | None = None
    throttled: tuple[str, ...] = ()
    stuck_mhz: float | None = None
    gpus: tuple[GpuState, ...] = ()
    flags: FrozenMap = EMPTY

    @property
    def steady(self) -> bool:
        """Did the server become steady, so that there are rounds at all?"""
        return self.rounds > 0


def evidence_of(
    sampler: Sampler, moments: Mapping[int, Moment], answers: Sequence[RequestResult]
) -> Evidence:
    """Gather what the rounds of a sampler showed; ``moments`` by pass, ``answers`` of the rounds."""
    kept = [moments[index] for index in sampler.round_passes]
    if not kept:
        return Evidence()
    found = {name: summary for name in KEPT if (summary := sampler.summary(name)) is not None}
    temperatures = [moment.temperature_c for moment in kept]
    known = [value for value in temperatures if value is not None]
    complete = len(known) == len(kept)
    drift = max((summary.drift for summary in found.values()), key=abs, default=None)
    counts = count_flags([answer for answer in answers if answer.valid])
    return Evidence(
        rounds=len(kept),
        figures={name: figure_of(name, summary) for name, summary in found.items()},
        temperature_c=rounded(fmean(known), 3) if complete else None,
        thermal=_thermal(kept, drift),
        rise_c=max(known) - known[0] if complete else None,
        throttled=tuple(sorted({why for one in kept for gpu in one.gpus for why in gpu.throttled})),
        stuck_mhz=_stuck_mhz(kept),
        gpus=kept[-1].gpus,
        flags=FrozenMap({name: count.share for name, count in counts.items() if count.share}),
    )


# Over less, a slope per minute says more about noise than about heat.
_MIN_SLOPE_MINUTES = 0.5


def hottest_c(gpus: Sequence[GpuState]) -> float | None:
    """Return the temperature of the hottest GPU; None where none can be read."""
    return max((gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None), default=None)


def _thermal(kept: Sequence[Moment], drift: float | None) -> FrozenMap:
    """Return the thermal fingerprint; the slope is the largest of any metric, in percent per minute."""
    first, last = kept[0], kept[-1]
    minutes = (last.at_s - first.at_s) / 60
    sloped = drift is not None and minutes >= _MIN_SLOPE_MINUTES
    values = {
        "temperature_start_c": first.temperature_c,
        "temperature_end_c": last.temperature_c,
        "clock_start_mhz": _clock_mhz(first),
        "clock_end_mhz": _clock_mhz(last),
        "load_s": rounded(last.at_s, 3),
        "slope_percent_per_min": rounded(100 * drift / minutes, 2) if drift is not None and sloped else None,
    }
    return FrozenMap({name: value for name, value in values.items() if value is not None})


def _clock_mhz(moment: Moment) -> float | None:
    return max((gpu.sm_clock_mhz for gpu in moment.gpus if gpu.sm_clock_mhz is not None), default=None)


def _stuck_mhz(kept: Sequence[Moment]) -> float | None:
    """Return the clock of the first GPU that shows itself stuck; GPUs keep their order from pass to pass."""
    most = min(len(moment.gpus) for moment in kept)
    found = (stuck_clock_mhz([moment.gpus[place] for moment in kept]) for place in range(most))
    return next((clock for clock in found if clock is not None), None)
