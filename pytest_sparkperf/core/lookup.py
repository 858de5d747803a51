"""The way from a baseline file to what a gate is judged against, or to the reason why there is nothing.

Nothing here ever turns a missing or doubtful baseline into a pass: each reason has an outcome of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pytest_sparkperf.core.baseline import (
    KEPT_RECORDS,
    MIN_RECORDS,
    OWN,
    TIME_FORMAT,
    BaselineFile,
    Record,
    Series,
    Work,
    baseline_from,
    closest_series,
    find_series,
    mean_flags,
)
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.hardware import Machine
from pytest_sparkperf.core.judge import smallest_margin
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.report import figure
from pytest_sparkperf.core.summary import Baseline

ProblemKind = Literal[
    "missing",
    "foreign",
    "incomparable",
    "too_few",
    "stale",
    "corrupt",
    "newer_schema",
    "mismatch",
    "unidentified",
    "broken",
]
MissingPolicy = Literal["fail", "skip"]
Action = Literal["ERROR", "INCONCLUSIVE", "SKIP"]

# A server grows faster over months, and then a loss of that much would pass against what it once was.
MAX_AGE_DAYS = 180
_RECORD = "pytest --sparkperf --sparkperf-record"
# For these nobody has recorded anything yet that fits, and the user may say that this is all right.
_NOTHING_RECORDED: frozenset[ProblemKind] = frozenset({"missing", "foreign", "incomparable"})
# A run may still be recorded where one of these is all that is wrong.
RECORDABLE: frozenset[ProblemKind] = _NOTHING_RECORDED | {"too_few", "stale"}
_UNDECIDED: frozenset[ProblemKind] = frozenset({"too_few", "stale"})


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no baseline to judge against."""

    kind: ProblemKind
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a gate is judged against.

    ``baselines`` and ``anchors`` by metric; a metric has an anchor only where the first accepted runs are not
    the latest ones too. ``facts`` are the newest run's; ``notes`` go beside every verdict.
    """

    series: Series
    baselines: Mapping[str, Baseline]
    anchors: Mapping[str, Baseline]
    facts: FrozenMap
    flags: Mapping[str, float]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GateIdentity:
    """What a gate asks of the store: which test, on which machine, with which work, about which metrics."""

    test: str
    machine: Machine
    work: Work
    metrics: tuple[str, ...]


def action(problem: Problem, missing: MissingPolicy = "fail") -> Action:
    """Return what becomes of the gate: only where nothing fits was recorded may the user choose to skip."""
    if problem.kind in _UNDECIDED:
        return "INCONCLUSIVE"
    return "SKIP" if missing == "skip" and problem.kind in _NOTHING_RECORDED else "ERROR"


def choose(
    file: BaselineFile, gate: GateIdentity, now: datetime, max_age_days: int = MAX_AGE_DAYS
) -> Found | Problem:
    """Choose from a file what today's run may be compared with; ``now`` in UTC."""
    if file.machine.digest != gate.machine.digest or file.test != gate.test:
        return Problem("mismatch", _mismatch(file, gate))
    series = find_series(file, gate.work)
    if series is None:
        return Problem("incomparable", _incomparable(file, gate))
    age = (now.replace(tzinfo=UTC) - recorded(series.newest)).days
    if age > max_age_days:
        return Problem("stale", _stale(gate, series, age, max_age_days))
    baselines = {}
    for metric in gate.metrics:
        baseline = baseline_from(series.recent, metric)
        known = 0 if baseline is None else len(baseline.thetas)
        if baseline is None or known < MIN_RECORDS:
            return Problem("too_few", _too_few(gate, metric, known))
        baselines[metric] = baseline
    flags = mean_flags(series.recent)
    return Found(
        series, baselines, _anchors(series, gate.metrics), series.newest.facts, flags, _notes(series)
    )


def choose_by_k(
    file: BaselineFile, test: str, k: int | None, metrics: Sequence[str], now: datetime
) -> Found | Problem:
    """Choose what a run would be compared with, for a forecast before any server says what its work is.

    Of several series with k draft tokens (None: with any) it is the one recorded last; imported ones are
    never judged against.
    """
    fitting = [one for one in file.series if one.work.source == OWN and (k is None or one.work.k == k)]
    if not fitting:
        of_k = "" if k is None else f" with k={k}"
        return Problem("incomparable", f"no run of {test!r}{of_k} is stored of {file.machine.slug}")
    newest = max(fitting, key=lambda one: recorded(one.newest))
    return choose(file, GateIdentity(test, file.machine, newest.work, tuple(metrics)), now)


def missing(gate: GateIdentity, elsewhere: Sequence[str]) -> Problem:
    """Say that this test has no baseline on this machine, only on those of the slugs ``elsewhere``."""
    here = gate.machine.slug
    if elsewhere:
        return Problem(
            "foreign",
            f"there is no baseline of {gate.test!r} for this machine ({here}), only for "
            f"{', '.join(sorted(elsewhere))}, and another machine's figures are never compared; record on "
            f"this one: {_RECORD}",
        )
    return Problem(
        "missing",
        f"there is no baseline of {gate.test!r} for this machine ({here}); record {MIN_RECORDS} runs of a "
        f"state known to be good, each with {_RECORD}, or say --sparkperf-missing-baseline=skip",
    )


def unidentified(reason: str) -> Problem:
    """Say that the machine is not known, so that no baseline may be called its own."""
    return Problem("unidentified", f"no baseline can be chosen: {reason}")


def broken(reason: str) -> Problem:
    """Say that the server does not answer as it must, so that nothing can be compared."""
    return Problem("broken", reason)


def corrupt(text: str) -> Problem:
    """Say that a file cannot be used; ``text`` names file and line."""
    return Problem("corrupt", f"the baseline cannot be used:\n{text}")


def newer(text: str) -> Problem:
    """Say that a file is of a later schema; ``text`` names file and line."""
    return Problem("newer_schema", f"the baseline is newer than this version of pytest-sparkperf:\n{text}")


def recorded(record: Record) -> datetime:
    """Return when a run was recorded."""
    return datetime.strptime(record.recorded_at, TIME_FORMAT).replace(tzinfo=UTC)


def margin_note(
    metric: str, max_slowdown: float, baseline: Baseline, constants: Constants = ASSUMED
) -> str | None:
    """Warn of a margin that an unchanged server would often miss; None where it is wide enough."""
    smallest = smallest_margin(baseline, constants)
    if max_slowdown >= smallest:
        return None
    return (
        f"max_slowdown={max_slowdown:g} of {metric} is narrower than {smallest:.3f}, what "
        f"{len(baseline.thetas)} records of this spread can decide: an unchanged server will often end "
        "INCONCLUSIVE; widen it, record more runs, or compare with a second server (against=...)"
    )


def faster_note(metric: str, low: float | None, constants: Constants = ASSUMED) -> str | None:
    """Suggest recording where a run is proven faster than its baseline: ``low`` is the ratio's low bound."""
    if low is None or low <= 1 + constants.allow:
        return None
    return (
        f"{metric} is at least {low - 1:.1%} faster than the baseline, so a later loss of that much would "
        f"pass: record this state with {_RECORD}"
    )


def recorded_lines(
    file: BaselineFile, work: Work, metrics: Sequence[str], constants: Constants = ASSUMED
) -> list[str]:
    """Say what the store holds after recording, and the smallest margin it can decide per metric."""
    series = find_series(file, work)
    if series is None:
        return []
    count = len(series.recent)
    lines = [f"recorded {file.test} on {file.machine.slug}: {count} of at most {KEPT_RECORDS} records"]
    if count < MIN_RECORDS:
        lines.append(f"  {MIN_RECORDS - count} more until gates can be judged against them")
        return lines
    for metric in metrics:
        baseline = baseline_from(series.recent, metric)
        if baseline is not None and len(baseline.thetas) >= MIN_RECORDS:
            value = figure(series.newest.figures[metric].value, METRICS[metric].unit)
            lines.append(
                f"  {metric} {value}; smallest margin: "
                f"max_slowdown={smallest_margin(baseline, constants):.3f} passes 95 % of unchanged runs"
            )
    return lines


def _mismatch(file: BaselineFile, gate: GateIdentity) -> str:
    return (
        f"the baseline file found for {gate.test!r} on {gate.machine.slug} says that it is of {file.test!r} "
        f"on {file.machine.slug}: it was copied or renamed; remove it and record on this machine: {_RECORD}"
    )


def _incomparable(file: BaselineFile, gate: GateIdentity) -> str:
    closest = closest_series(file, gate.work)
    if closest is None:
        return f"no comparable baseline of {gate.test!r}: its file holds no records; record with {_RECORD}"
    difference = closest.work.first_difference(gate.work)
    imported = ""
    if closest.work.source != OWN and all(series.work.source != OWN for series in file.series):
        imported = "; imported figures are shown and never judged against"
    return (
        f"no comparable baseline of {gate.test!r} on {gate.machine.slug}: {difference}{imported}; record "
        f"what runs today with {_RECORD}, or measure what was recorded"
    )


def _stale(gate: GateIdentity, series: Series, age: int, most: int) -> str:
    return (
        f"the newest record of {gate.test!r} on {gate.machine.slug} is {age} days old "
        f"({series.newest.recorded_at}), more than {most}: the server may have become faster since, and a "
        f"loss would pass; record again with {_RECORD}"
    )


def _too_few(gate: GateIdentity, metric: str, known: int) -> str:
    return (
        f"{known} of {MIN_RECORDS} records of {metric} for {gate.test!r} on {gate.machine.slug}: fewer say "
        f"nothing about how much runs differ by themselves; record {MIN_RECORDS - known} more with {_RECORD}"
    )


def _anchors(series: Series, metrics: Sequence[str]) -> dict[str, Baseline]:
    first = series.anchors
    if {record.run for record in first} <= {record.run for record in series.recent}:
        return {}
    return _sufficient(first, metrics)


def _sufficient(records: Sequence[Record], metrics: Sequence[str]) -> dict[str, Baseline]:
    found = {metric: baseline_from(records, metric) for metric in metrics}
    return {name: one for name, one in found.items() if one is not None and len(one.thetas) >= MIN_RECORDS}


def _notes(series: Series) -> tuple[str, ...]:
    days = {record.batch or record.recorded_at[:10] for record in series.recent}
    if len(days) > 1:
        return ()
    day = series.recent[0].recorded_at[:10]
    return (
        f"all {len(series.recent)} records are of one day ({day}): the spread between days is not in them",
    )
