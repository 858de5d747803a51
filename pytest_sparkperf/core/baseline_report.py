"""Baseline files as lines of text: lists, one file in full, what changed between two versions of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_sparkperf.core.baseline import (
    MIN_RECORDS,
    BaselineFile,
    Record,
    Series,
    Work,
    baseline_from,
    metrics_of,
)
from pytest_sparkperf.core.claim import log_speed
from pytest_sparkperf.core.fingerprint import differences
from pytest_sparkperf.core.imports import Imported
from pytest_sparkperf.core.judge import smallest_margin
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.report import figure


def list_lines(file: BaselineFile) -> list[str]:
    """Return one line per series: test, work, how many records, the last one, the smallest margin."""
    simulated = " [SIMULATED]" if file.machine.source == "simulator" else ""
    return [f"{file.test}{simulated}", *(f"  {_series_line(series)}" for series in file.series)]


def show_lines(file: BaselineFile) -> list[str]:
    """Return everything a file holds: per series the figures of each record and the newest run's facts."""
    lines = [f"{file.test} on {file.machine.slug}"]
    for series in file.series:
        lines += ["", series.work.describe()]
        lines += [f"  {_record_line(record)}" for record in series.records]
        lines += [f"  {line}" for line in _margin_lines(series)]
        lines += ["  facts of the newest record:"] if series.newest.facts else []
        lines += [f"    {name}: {value}" for name, value in _flat(series.newest.facts)]
    return lines


def diff_lines(before: BaselineFile | None, after: BaselineFile | None) -> list[str]:
    """Say what changed between two versions of a file; nothing where nothing did."""
    file = after or before
    if file is None or before == after:
        return []
    lines = [f"{file.test} on {file.machine.slug}"]
    works = {series.work: None for one in (before, after) if one is not None for series in one.series}
    for work in works:
        changed = list(_series_diff(_records_of(before, work), _records_of(after, work)))
        lines += [f"  {work.describe()}", *(f"    {line}" for line in changed)] if changed else []
    return lines


def compare_lines(first: Sequence[Imported], second: Sequence[Imported]) -> tuple[list[str], bool]:
    """Compare results of two files, B against A; return the lines, and whether the works agree.

    One run of each says nothing about how much runs differ by themselves, so there is no verdict.
    """
    lines: list[str] = []
    alike = len(first) == len(second)
    if not alike:
        common = min(len(first), len(second))
        lines.append(f"A holds {len(first)} results, B {len(second)}: only the first {common} are compared")
    for a, b in zip(first, second, strict=False):
        difference = a.work.first_difference(b.work)
        lines.append(b.label)
        if difference is not None:
            alike = False
            text = difference.replace(" in the baseline", " in A").replace(" today", " in B")
            lines.append(f"  not the same work: {text}")
        lines += [f"  {line}" for line in _ratio_lines(a, b)]
    return [
        *lines,
        "one run each: no interval, so no verdict; a gate needs rounds or records (max_slowdown, against)",
    ], alike


def _series_line(series: Series) -> str:
    records = _counted(len(series.records), "record")
    text = f"{series.work.describe()}: {records}, newest {series.newest.recorded_at}"
    metrics = metrics_of([series.newest])
    return "; ".join([text, *(_figure(series.newest, name) for name in metrics[:1])])


def _record_line(record: Record) -> str:
    words = [
        record.recorded_at,
        *(_figure(record, name) for name in metrics_of([record])),
        _counted(record.rounds, "round"),
    ]
    words += [f"{record.temperature_c:g} C"] if record.temperature_c is not None else []
    words += [f"commit {record.commit[:10]}"] if record.commit else []
    return ", ".join(words + (["anchor"] if record.anchor else []))


def _margin_lines(series: Series) -> Iterator[str]:
    for metric in metrics_of(series.recent):
        baseline = baseline_from(series.recent, metric)
        if baseline is not None and len(baseline.thetas) >= MIN_RECORDS:
            yield f"smallest margin of {metric}: max_slowdown={smallest_margin(baseline):.3f}"


def _figure(record: Record, metric: str) -> str:
    return f"{metric} {figure(record.figures[metric].value, METRICS[metric].unit)}"


def _flat(facts: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        else:
            yield name, value


def _records_of(file: BaselineFile | None, work: Work) -> tuple[Record, ...]:
    return next((series.records for series in file.series if series.work == work), ()) if file else ()


def _series_diff(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    old = {record.run: record for record in before}
    new = {record.run: record for record in after}
    yield from (f"- {_record_line(record)}" for run, record in old.items() if run not in new)
    yield from (
        f"~ {_record_line(old[run])} -> {_record_line(new[run])}"
        for run in old
        if run in new and old[run] != new[run]
    )
    yield from (f"+ {_record_line(record)}" for run, record in new.items() if run not in old)
    if before and after:
        yield from _mean_lines(before, after)
        yield from differences(before[-1].facts, after[-1].facts)


def _mean_lines(before: Sequence[Record], after: Sequence[Record]) -> Iterator[str]:
    for metric in metrics_of([*before, *after]):
        then, now = baseline_from(before, metric), baseline_from(after, metric)
        if then is not None and now is not None and abs(now.mean - then.mean) >= 0.0005:
            change = now.mean - then.mean
            yield f"mean speed by {metric}: {change:+.1%}"


def _ratio_lines(a: Imported, b: Imported) -> Iterator[str]:
    first, second = a.record.figures, b.record.figures
    for metric in metrics_of([a.record, b.record]):
        if metric not in first or metric not in second:
            yield f"{metric}: only in {'A' if metric in first else 'B'}"
        elif metric == "itl_ms" and a.work.k != b.work.k:
            # A chunk holds as many tokens as were accepted: other drafts, other chunks.
            yield "itl_ms: not comparable where k differs"
        else:
            then, now = first[metric].value, second[metric].value
            word = _judged(log_speed(metric, then), log_speed(metric, now))
            unit = METRICS[metric].unit
            yield f"{metric}: {figure(then)} -> {figure(now, unit)} ({now / then - 1:+.1%}, {word})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _judged(then: float | None, now: float | None) -> str:
    if then is None or now is None or then == now:
        return "the same"
    return "better" if now > then else "worse"
