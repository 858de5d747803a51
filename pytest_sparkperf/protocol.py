"""What happens to a gate between collection and its report: prepare, refuse, measure, judge, guard."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import groupby

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.report import failure_text, inconclusive_text, summary_lines
from pytest_sparkperf.marks import GATE, GATE_FIXTURE, Gate, has_mark, is_gate, read_mark
from pytest_sparkperf.session import RUN, Run

SKIP_REASON = "a performance gate: runs with --sparkperf"
WORKER = (
    "a performance gate ran under xdist worker {worker}: tests in other workers would share the machine with "
    "it and spoil its figures; run gates with -n0, for example: pytest --sparkperf -n0 -m sparkperf"
)
NO_RESULT = (
    "the sparkperf mark of this test measured nothing, and a gate that did not measure never passes; "
    "the mark works on test functions, methods, unittest cases and async tests, whose fixtures pytest sets up"
)


def skip_gates(items: list[pytest.Item]) -> None:
    """Without --sparkperf every gate is skipped, with that reason."""
    for item in items:
        if is_gate(item):
            item.add_marker(pytest.mark.skip(reason=SKIP_REASON))


def prepare(items: list[pytest.Item]) -> None:
    """Give marked items the fixture that measures, and gather neighbouring gates of one server."""
    for item in items:
        if not is_gate(item):
            continue
        gate = item.stash[GATE] = Gate(marked=has_mark(item))
        try:
            gate.spec = read_mark(item)
        except ConfigError as error:
            gate.fault = str(error)
        names = getattr(item, "fixturenames", None)
        if gate.marked and names is not None and GATE_FIXTURE not in names:
            # Last, so that what the user's fixtures set up is there when the server is measured.
            names.append(GATE_FIXTURE)
    items[:] = _fewest_starts(items)


def _fewest_starts(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order neighbouring gates of one parent by variant, stably, so that each server starts once."""
    ordered: list[pytest.Item] = []
    for _, run in groupby(items, key=lambda item: (item.parent, GATE in item.stash)):
        neighbours = list(run)
        first_seen: dict[object, int] = {}
        for item in neighbours:
            first_seen.setdefault(_server_words(item), len(first_seen))
        ordered += sorted(neighbours, key=lambda item: first_seen[_server_words(item)])
    return ordered


def _server_words(item: pytest.Item) -> object:
    gate = item.stash.get(GATE, None)
    return None if gate is None or gate.spec is None else gate.spec.server_words


def validate(session: pytest.Session, run: Run) -> None:
    """Check every selected mark together; outside a worker all faults are one usage error.

    In an xdist worker a usage error would be lost, so there the item itself fails.
    """
    run.load_targets(session.config)
    faults: list[str] = []
    for item in session.items:
        gate = item.stash.get(GATE, None)
        if gate is None:
            continue
        if gate.spec is not None:
            try:
                run.expect(gate.spec)
            except ConfigError as error:
                gate.fault = str(error)
        if gate.fault is not None:
            faults += [f"{item.nodeid}: {line}" for line in gate.fault.splitlines()]
    if faults and _worker(session.config) is None:
        raise pytest.UsageError("\n".join(faults))


def refuse_unfit(item: pytest.Item) -> None:
    """Fail a gate that cannot be run where it is, before any server starts."""
    run = item.config.stash[RUN]
    if not run.settings.enabled or not is_gate(item):
        return
    gate = item.stash.get(GATE, None)
    if gate is not None and gate.fault is not None:
        pytest.fail(gate.fault, pytrace=False)
    worker = _worker(item.config)
    if worker is not None and worker.dist != "each":
        pytest.fail(WORKER.format(worker=worker.name), pytrace=False)


def judge_around(item: pytest.Item) -> Generator[None, object, object]:
    """Run the body between the measurement and its verdict.

    ERROR ends the test before its body, which could only stumble over missing figures; FAIL beats a skip in
    the body; a failing body speaks for itself; INCONCLUSIVE is told only of a body that passed.
    """
    gate = item.stash.get(GATE, None)
    run = item.config.stash[RUN]
    if gate is None or gate.result is None or not run.settings.enabled:
        return (yield)
    if gate.outcome == "ERROR":
        pytest.fail(failure_text(gate.result), pytrace=False)
    try:
        outcome = yield
    except pytest.skip.Exception:
        if gate.outcome == "FAIL":
            pytest.fail(failure_text(gate.result), pytrace=False)
        raise
    if gate.outcome == "FAIL":
        pytest.fail(failure_text(gate.result), pytrace=False)
    if gate.outcome == "INCONCLUSIVE":
        text = inconclusive_text(gate.result)
        if run.settings.inconclusive == "fail":
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    return outcome


def finish_report(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> pytest.TestReport:
    """Guard what no exception could reach, and hand the figures to the terminal section.

    A unittest case takes its outcome from its own list of errors, so that a skip in its body would cover the
    verdict; and an item whose setup never ran the measuring fixture would end as passed.
    """
    gate = item.stash.get(GATE, None)
    run = item.config.stash[RUN]
    if gate is None or not run.settings.enabled or call.when != "call":
        return report
    expected = hasattr(report, "wasxfail")
    if gate.result is None:
        if gate.marked and (report.passed or expected):
            _fail(report, NO_RESULT)
        return report
    if gate.outcome in ("FAIL", "ERROR") and not report.failed and not expected:
        _fail(report, failure_text(gate.result))
    elif gate.outcome == "INCONCLUSIVE" and report.skipped and not expected:
        path, line, _ = item.location
        report.longrepr = (path, (line or 0) + 1, f"Skipped: {inconclusive_text(gate.result)}")
    if report.failed and call.excinfo is not None and gate.outcome != "PASS":
        _add_section(report, failure_text(gate.result))
    # Plain values only: xdist carries a report's attributes to the controller as JSON.
    report.sparkperf = {"outcome": gate.outcome, "lines": summary_lines(item.nodeid, gate.result)}  # type: ignore[attr-defined]  # pytest allows extra attributes on a report
    return report


def leave(item: pytest.Item) -> None:
    """Let go of the server that a gate used, or would have used had it not been skipped."""
    gate = item.stash.get(GATE, None)
    if gate is not None and gate.spec is not None and gate.fault is None:
        item.config.stash[RUN].done(gate.spec)


def set_exit_status(session: pytest.Session, run: Run) -> None:
    """Fail a run in which gates were asked and none reached a verdict."""
    if run.unproven and not run.proven and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@dataclass(frozen=True, slots=True)
class _Worker:
    name: str
    dist: str


def _worker(config: pytest.Config) -> _Worker | None:
    data = getattr(config, "workerinput", None)
    return None if data is None else _Worker(data["workerid"], data.get("sparkperf_dist", "load"))


def _fail(report: pytest.TestReport, text: str) -> None:
    report.outcome = "failed"
    report.longrepr = text


def _add_section(report: pytest.TestReport, text: str) -> None:
    if text not in str(report.longrepr):
        report.sections.append(("sparkperf", text))
