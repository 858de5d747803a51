"""What a baseline file holds, which of it today's run may be compared with, and what may be recorded.

A file belongs to one test on one machine. Its series hold the runs that did the same work, at most
``KEPT_RECORDS`` of them and, for good, the first ``ANCHOR_RECORDS``: against the latest runs alone a server
could lose one percent a week without ever failing.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_sparkperf.core.claim import log_speed
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.hardware import Machine
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.summary import Baseline, Summary

# Below the root of the suite.
FOLDER = ".sparkperf/baselines"
KEPT_RECORDS = 10
ANCHOR_RECORDS = 5
MIN_RECORDS = 3
MIN_ROUNDS = 8
# What a file may hold at most; more models or workloads in one test need tests, or names, of their own.
MAX_SERIES = 6
OWN = "own"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Shares of flagged requests may differ by this much before two runs did different work.
MAX_FLAG_GAP = 0.10
_DIGITS = 6
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_DIGEST_END = re.compile(r"-[0-9a-f]{8}")
_SLUG_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Work:
    """What runs must have in common to be compared; ``source`` is ``own`` or the tool of an import."""

    model: str
    k: int | None
    speculator: str | None
    workload: str
    metric_rule: str | None
    source: str = OWN

    def first_difference(self, today: Work) -> str | None:
        """Name the first field in which a stored work is not today's: ``k 0 in the baseline, 3 today``."""
        for label, then, now in self._pairs(today):
            if then != now:
                return f"{label} {_shown(then)} in the baseline, {_shown(now)} today"
        return None

    def agreement(self, today: Work) -> int:
        """Count the fields in which two works agree."""
        return sum(then == now for _, then, now in self._pairs(today))

    def describe(self) -> str:
        """Return a short text for lists."""
        k = "k unknown" if self.k is None else f"k={self.k}"
        imported = "" if self.source == OWN else f", imported from {self.source}"
        speculator = f" {self.speculator}" if self.speculator else ""
        return f"{self.model} {k}{speculator}, workload {self.workload}{imported}"

    def _pairs(self, today: Work) -> list[tuple[str, Any, Any]]:
        labels = {"workload": "workload digest", "metric_rule": "TPOT rule", "source": "source"}
        return [
            (labels.get(one.name, one.name), getattr(self, one.name), getattr(today, one.name))
            for one in fields(self)
        ]


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of one run, in the metric's unit; ``sd`` is that of a round's mean on the log scale."""

    value: float
    sd: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One accepted run.

    ``run`` names it, so that nothing is stored twice; ``recorded_at`` is UTC, ``2026-11-30T16:05:34Z``.
    ``temperature_c`` is what heat is judged by; ``thermal`` holds the thermal fingerprint; ``flags`` the
    shares of flagged requests. ``batch``: the set that it was recorded in, one after the other without a day
    between them.
    """

    run: str
    recorded_at: str
    rounds: int
    figures: Mapping[str, Figure]
    temperature_c: float | None = None
    thermal: FrozenMap = EMPTY
    flags: FrozenMap = EMPTY
    facts: FrozenMap = EMPTY
    commit: str | None = None
    anchor: bool = False
    batch: str | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Runs of the same work, the oldest first."""

    work: Work
    records: tuple[Record, ...]

    @property
    def recent(self) -> tuple[Record, ...]:
        """The runs that today's is compared with."""
        return self.records[-KEPT_RECORDS:]

    @property
    def anchors(self) -> tuple[Record, ...]:
        """The first accepted runs."""
        return tuple(record for record in self.records if record.anchor)

    @property
    def newest(self) -> Record:
        """The run recorded last."""
        return self.records[-1]


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """Everything kept of one test on one machine."""

    test: str
    machine: Machine
    series: tuple[Series, ...] = ()


def figure_of(metric: str, summary: Summary) -> Figure:
    """Turn the estimate of a run into the figure that is kept of it."""
    speed = math.exp(summary.theta)
    return Figure(rounded(speed if METRICS[metric].higher_is_better else 1 / speed), rounded(summary.sd, 3))


def rounded(value: float, digits: int = _DIGITS) -> float:
    """Round to significant digits, so that a file shows no noise."""
    return float(f"{value:.{digits}g}")


def baseline_from(records: Sequence[Record], metric: str) -> Baseline | None:
    """Return the baseline of one metric from the runs that have it; None where none does."""
    having = [record for record in records if metric in record.figures]
    thetas = [log_speed(metric, record.figures[metric].value) for record in having]
    usable = tuple(theta for theta in thetas if theta is not None)
    return Baseline(usable, tuple(record.temperature_c for record in having)) if usable else None


def find_series(file: BaselineFile, work: Work) -> Series | None:
    """Return the series of exactly this work."""
    return next((series for series in file.series if series.work == work), None)


def closest_series(file: BaselineFile, work: Work) -> Series | None:
    """Return the series that agrees with a work in most fields, of several the one recorded last."""
    return max(
        file.series,
        key=lambda series: (series.work.agreement(work), series.newest.recorded_at),
        default=None,
    )


def append_record(file: BaselineFile | None, name: BaselineFile, work: Work, record: Record) -> BaselineFile:
    """Return the file with one more run; the same file where it holds that run already.

    ``name`` is an empty file that says of which test and machine this is. Raises ConfigError where the file
    is another's or holds ``MAX_SERIES`` other works already.
    """
    file = file or name
    if file.test != name.test or file.machine.digest != name.machine.digest:
        raise ConfigError(
            f"the baseline file of {file.test!r} on {file.machine.slug} cannot take a run of {name.test!r} "
            f"on {name.machine.slug}: it was copied or renamed; remove it, or give the test another name=..."
        )
    series = find_series(file, work)
    if series is None and len(file.series) >= MAX_SERIES:
        raise ConfigError(
            f"the baseline of {file.test!r} on {file.machine.slug} holds {MAX_SERIES} kinds of work already, "
            "which is all a file may hold; remove old ones with sparkperf baseline prune, or give the tests "
            "names of their own by name=..."
        )
    changed = _with_record(series or Series(work, ()), record)
    others = [one for one in file.series if one.work != work]
    return replace(file, series=tuple(sorted([*others, changed], key=_series_order)))


def _with_record(series: Series, record: Record) -> Series:
    if any(record.run == known.run for known in series.records):
        return series
    first = len(series.anchors) < ANCHOR_RECORDS and len(series.records) < ANCHOR_RECORDS
    ordered = sorted(
        [*series.records, replace(record, anchor=first)], key=lambda one: (one.recorded_at, one.run)
    )
    kept = [*(one for one in ordered[:-KEPT_RECORDS] if one.anchor), *ordered[-KEPT_RECORDS:]]
    return replace(series, records=tuple(kept))


def _series_order(series: Series) -> tuple[str, ...]:
    return tuple(
        "" if value is None else str(value)
        for value in (getattr(series.work, one.name) for one in fields(Work))
    )


def flag_gap(then: Mapping[str, float], now: Mapping[str, float]) -> str | None:
    """Say which flag shows that two runs did different work; None where their shares are close.

    A flag that one side does not know is taken as absent there.
    """
    for name in sorted({*then, *now}):
        before, after = then.get(name, 0.0), now.get(name, 0.0)
        if abs(before - after) > MAX_FLAG_GAP:
            return (
                f"{before:.0%} of the requests were {name} in the baseline and {after:.0%} today: these runs "
                "did different work, their speeds say nothing about each other; look at the texts, and "
                "record a new baseline if the change is meant"
            )
    return None


def mean_flags(records: Sequence[Record]) -> dict[str, float]:
    """Return the mean share of each flag over runs; those without flags count as 0."""
    names = {name for record in records for name in record.flags}
    return {name: sum(record.flags.get(name, 0.0) for record in records) / len(records) for name in names}


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run must say of itself before it may be recorded.

    ``broken``: why it is no valid measurement. ``failed``: the limit that it FAILed. ``rise_c``: how far the
    GPU warmed over its rounds, None without a thermometer. ``throttled``: reasons seen. ``unfit``: why the
    hardware is not itself.
    """

    rounds: int
    steady: bool
    simulated: bool
    broken: str | None = None
    failed: str | None = None
    rise_c: float | None = None
    throttled: tuple[str, ...] = ()
    unfit: str | None = None


def refusals(state: RunState, machine: Machine, max_rise_c: float = 1.0) -> tuple[str, ...]:
    """Return every reason why a run must not become part of a baseline; none lets it."""
    found = []
    if state.broken is not None:
        found.append(f"it is no valid measurement ({state.broken})")
    if state.failed is not None:
        found.append(
            f"it FAILed {state.failed}, and what fails does not become the norm by itself: if the change is "
            "meant, remove the old records by sparkperf baseline prune first"
        )
    if not state.steady:
        found.append("it never became steady")
    elif state.rounds < MIN_ROUNDS:
        found.append(f"it has {state.rounds} rounds, a record needs {MIN_ROUNDS}: raise budget_s")
    if state.rise_c is not None and state.rise_c > max_rise_c:
        found.append(f"the GPU warmed by {state.rise_c:.1f} C during it, at most {max_rise_c:g} C is steady")
    if state.throttled:
        found.append(f"the GPU was throttled ({', '.join(state.throttled)})")
    if state.unfit is not None:
        found.append(f"the hardware is not fit ({state.unfit})")
    if state.simulated and machine.source != "simulator":
        found.append("it is simulated and would stand among records of real hardware")
    if not state.simulated and machine.source == "simulator":
        found.append("it is real and would stand among records of the simulator")
    return tuple(found)


def file_name(test: str) -> str:
    """Return a file-safe name, distinct for distinct tests, readable where their names are.

    A plain name (lower case, digits, ``._-``) stays; anything else is simplified and gets a digest.
    """
    if _PLAIN_NAME.fullmatch(test) and not _DIGEST_END.fullmatch(test[-9:]):
        return f"{test}.yaml"
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9._-]+", "-", test.lower().replace(".py::", "-").replace("::", "-"))
    return f"{plain.strip('-._')[-_SLUG_LENGTH:].strip('-._') or 'test'}-{digest}.yaml"


def metrics_of(records: Iterable[Record]) -> list[str]:
    """Return the metrics that runs have, in the order of METRICS."""
    having = {name for record in records for name in record.figures}
    return [name for name in METRICS if name in having]


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)
