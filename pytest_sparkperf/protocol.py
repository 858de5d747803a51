"""What happens to a gate between collection and its report: prepare, refuse, measure, judge, guard."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_sparkperf.core.errors import ConfigError, SparkPerfError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.keywords import valid_keywords
from pytest_sparkperf.core.order_of_starts import NO_SERVER, fewest_starts, server_needs
from pytest_sparkperf.core.report import failure_text, inconclusive_text, summary_lines
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.sweep import Cell, cell_of
from pytest_sparkperf.core.targets import Config
from pytest_sparkperf.marks import GATE, GATE_FIXTURE, Gate, has_mark, is_gate, params_of, read_mark, test_of
from pytest_sparkperf.session import RUN, Run

SKIP_REASON = "a performance gate: runs with --sparkperf"
WORKER = (
    "a performance gate cannot run in the xdist worker {worker}, where other workers share the machine and "
    "spoil its figures; run gates with -n0, for example: pytest --sparkperf -n0 -m sparkperf"
)
NO_RESULT = (
    "the sparkperf mark of this test measured nothing, and a gate that did not measure never passes; "
    "the mark works on test functions, methods, unittest cases and async tests, whose fixtures pytest sets up"
)
AGAIN = (
    "this gate has run already, and its first outcome stands: a limit that is measured until it passes "
    "proves nothing; leave gates out of reruns, for example with -m 'not sparkperf' beside --reruns"
)
_PACKAGE = str(Path(__file__).parent) + os.sep


def skip_gates(items: list[pytest.Item]) -> None:
    """Without --sparkperf every gate is skipped, with that reason."""
    for item in items:
        if is_gate(item):
            item.add_marker(pytest.mark.skip(reason=SKIP_REASON))


def prepare(items: list[pytest.Item], config: Config) -> None:
    """Give marked items the fixture that measures, and gather neighbouring gates of one server."""
    # Before any is changed: items of one function share the list of their fixtures.
    gates = [item for item in items if is_gate(item)]
    for item in gates:
        gate = item.stash[GATE] = Gate(marked=has_mark(item))
        try:
            gate.spec = read_mark(item, config.workloads)
        except ConfigError as error:
            gate.fault = str(error)
        if gate.marked and isinstance(item, pytest.Function) and GATE_FIXTURE not in item.fixturenames:
            # Last, so that what the user's fixtures set up is there when the server is measured.
            item.fixturenames = [*item.fixturenames, GATE_FIXTURE]
    needs = [server_needs(item.stash[GATE].spec) if GATE in item.stash else NO_SERVER for item in items]
    order = fewest_starts([item.parent for item in items], needs, max_resident=config.max_resident)
    items[:] = [items[index] for index in order]


def validate(session: pytest.Session, run: Run) -> None:
    """Check all selected gates together; every fault at once is one usage error.

    In an xdist worker a usage error would be lost, so there each gate fails by itself.
    """
    gates = [(item, item.stash[GATE]) for item in session.items if GATE in item.stash]
    if not gates:
        return
    in_worker = _worker(session.config) is not None
    try:
        run.load_targets(session.config)
    except pytest.UsageError as error:
        if not in_worker:
            raise
        for _, gate in gates:
            gate.fault = gate.fault or str(error)
    if not in_worker:
        run.list_changes(
            {item.nodeid: (item.path, _name_in_file(item)) for item, gate in gates if gate.marked}
        )
    faults: dict[str, list[str]] = {}
    for item, gate in gates:
        if gate.fault is None and gate.spec is not None:
            unfit = _unfit(gate.spec, run)
            gate.expected = unfit is None
            # A test that only uses our fixtures may name its servers in its body.
            gate.fault = unfit if gate.marked else None
            if gate.fault is not None and _may_skip(item):
                continue  # told by the item itself, if it is not skipped
        for line in (gate.fault or "").splitlines():
            faults.setdefault(line, []).append(item.nodeid)
    if faults and not in_worker:
        raise pytest.UsageError(_listed(faults))


def _name_in_file(item: pytest.Item) -> str:
    """Return the test's name as its file has it, without the values of its parameters."""
    names = item.nodeid.split("::")[1:]
    return "::".join([*names[:-1], getattr(item, "originalname", None) or item.name])


def _unfit(spec: GateSpec, run: Run) -> str | None:
    try:
        run.expect(spec)
    except ConfigError as error:
        return str(error)
    return None


def _may_skip(item: pytest.Item) -> bool:
    """Tell whether a mark may skip the item, for example because its target is not there."""
    return any(item.get_closest_marker(name) is not None for name in ("skip", "skipif"))


def _listed(faults: dict[str, list[str]]) -> str:
    """Say each fault once with the first test that has it; what is valid comes once, at the end."""
    valid = f"valid keywords are {valid_keywords()}"
    lines = []
    for fault, nodeids in faults.items():
        others = f" (and {len(nodeids) - 1} more)" if len(nodeids) > 1 else ""
        if fault != valid:
            lines.append(f"{nodeids[0]}{others}: {fault}")
    return "\n".join([*lines, valid] if valid in faults else lines)


def refuse_unfit(item: pytest.Item) -> None:
    """Fail a gate that cannot be run where it is, before any server starts."""
    run = item.config.stash[RUN]
    if not run.settings.enabled or not is_gate(item):
        return
    gate = item.stash.get(GATE, None)
    if gate is not None and gate.fault is not None:
        pytest.fail(gate.fault, pytrace=False)
    if gate is not None and gate.has_run:
        gate.again = True
        pytest.fail(_second_run(gate), pytrace=False)
    worker = _worker(item.config)
    if worker is not None and not worker.alone:
        pytest.fail(WORKER.format(worker=worker.name), pytrace=False)


def _second_run(gate: Gate) -> str:
    first = gate.error if gate.result is None else failure_text(gate.result)
    return AGAIN if first is None else f"{AGAIN}\nfirst outcome:\n{first}"


def judge_around(item: pytest.Item) -> Generator[None, object, object]:
    """Run the body between the measurement and its verdict.

    What has no figures ends the test before its body, which could only stumble over them: ERROR, and
    INCONCLUSIVE for want of a single round. FAIL beats a skip in the body; a failing body speaks for itself;
    INCONCLUSIVE is told only of a body that passed.
    """
    gate = item.stash.get(GATE, None)
    run = item.config.stash[RUN]
    if gate is not None:
        gate.called = True
    if gate is None or gate.result is None or not run.settings.enabled:
        return (yield)
    fault = _fault(gate, run)
    open_ended = gate.outcome in ("INCONCLUSIVE", "SKIPPED")
    if gate.outcome == "ERROR" or (open_ended and not gate.result.rounds):
        _end(gate.result, fault)
    try:
        outcome = yield
    except pytest.skip.Exception:
        if fault is not None:
            _fail(fault)
        raise
    if fault is not None or open_ended:
        _end(gate.result, fault)
    return outcome


def _end(result: Result, fault: str | None) -> NoReturn:
    """End a test by its gate: with what failed it, or skipped because nothing was decided."""
    if fault is not None:
        _fail(fault)
    pytest.skip(inconclusive_text(result))


def _fault(gate: Gate, run: Run) -> str | None:
    """Return the text with which a gate fails its test; None where it does not."""
    if gate.result is None or gate.outcome in ("PASS", "MEASURED", "SKIPPED"):
        return None
    if gate.outcome == "INCONCLUSIVE" and run.settings.inconclusive == "skip":
        return None
    return failure_text(gate.result)


def _fail(text: str) -> NoReturn:
    """Fail with our text alone: whatever was being handled is not part of the story."""
    raise pytest.fail.Exception(text, pytrace=False) from None


def finish_report(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> pytest.TestReport:
    """Guard what no exception could reach, and hand the figures to the terminal section.

    A unittest case takes its outcome from its own list of errors, so that a skip in its body would cover the
    verdict; and an item whose setup never ran the measuring fixture would end as passed.
    """
    _skip_at_home(item, report)
    gate = item.stash.get(GATE, None)
    run = item.config.stash[RUN]
    if gate is None or gate.again or not run.settings.enabled or not _is_last_word(call, report):
        return report
    # Plain values only: xdist carries a report's attributes to the controller as JSON.
    report.sparkperf_cells = [asdict(cell) for cell in _cells(item, gate)]  # type: ignore[attr-defined]  # pytest allows extra attributes on a report
    expected = hasattr(report, "wasxfail")
    if gate.result is None:
        if gate.error is not None and not report.failed:
            _turn_failed(report, gate.error)  # xfail expects a slow server, not a missing one
        elif gate.marked and call.when == "call" and (report.passed or expected):
            _turn_failed(report, NO_RESULT)
        if gate.tables:
            _tell(item, report, gate, [item.nodeid])
        return report
    fault = _fault(gate, run)
    if fault is not None and not report.failed and (gate.outcome == "ERROR" or not expected):
        _turn_failed(report, fault)
    if report.failed and call.excinfo is not None:
        _add_section(report, failure_text(gate.result))
    _tell(item, report, gate, summary_lines(item.nodeid, gate.result))
    return report


def _tell(item: pytest.Item, report: pytest.TestReport, gate: Gate, lines: Sequence[str]) -> None:
    """Hand lines, the first of them the item's name, to the terminal section."""
    worker = _worker(item.config)
    first = lines[0] if worker is None else f"[{worker.name}] {lines[0]}"
    told = [first, *lines[1:], *(f"  {line}" for line in gate.tables)]
    # Plain values only: xdist carries a report's attributes to the controller as JSON.
    report.sparkperf = {"outcome": gate.outcome, "lines": told}  # type: ignore[attr-defined]  # pytest allows extra attributes on a report


def _cells(item: pytest.Item, gate: Gate) -> list[Cell]:
    """Return what an item adds to a sweep: its mark's measurement under parameters, and those of its body."""
    params = params_of(item)
    if gate.result is None or gate.spec is None or not params:
        return gate.cells
    return [cell_of(test_of(item), params, gate.spec, gate.result), *gate.cells]


def _is_last_word(call: pytest.CallInfo[None], report: pytest.TestReport) -> bool:
    """Tell whether this report is the item's outcome: of its call, or of a setup that let no call happen.

    A fixture that is set up behind the measurement may skip the test; the verdict stands all the same.
    """
    return call.when == "call" or (call.when == "setup" and not report.passed)


def _skip_at_home(item: pytest.Item, report: pytest.TestReport) -> None:
    """Let a skip of ours name the file and line of the test, as a skip mark does."""
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[0].startswith(_PACKAGE):
        path, line, _ = item.reportinfo()
        report.longrepr = (os.fspath(path), (line or 0) + 1, report.longrepr[2])


def leave(item: pytest.Item) -> None:
    """Let go of the server that a gate used, or would have used had it not been skipped."""
    gate = item.stash.get(GATE, None)
    if gate is None or gate.spec is None or not gate.expected:
        return
    gate.expected = False  # once, however often the item is run
    try:
        item.config.stash[RUN].done(gate.spec)
    except SparkPerfError as error:
        _fail(str(error))


def set_exit_status(session: pytest.Session, run: Run) -> None:
    """Fail a run whose gates all stayed open, and one that could not stop what it started."""
    open_only = run.unproven and not run.proven
    if (open_only or run.trouble) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@dataclass(frozen=True, slots=True)
class _Worker:
    """The xdist worker this process is; ``alone`` when no other one runs tests on its machine."""

    name: str
    alone: bool


def inform_worker(node: Any) -> None:
    """Tell a worker of xdist, before it starts, whether it may measure: it cannot see the others itself."""
    places = [_place(spec) for spec in node.nodemanager.specs]
    each = node.config.getoption("dist") == "each"
    node.workerinput["sparkperf_alone"] = each and places.count(_place(node.gateway.spec)) == 1


def _place(spec: Any) -> str:
    """Return the machine of a worker as its specification names it: ``ssh=``, ``socket=`` or this one."""
    return str(spec.ssh or spec.via or str(spec.socket or "").partition(":")[0])


def _worker(config: pytest.Config) -> _Worker | None:
    data = getattr(config, "workerinput", None)
    return None if data is None else _Worker(data["workerid"], data.get("sparkperf_alone", False))


def _turn_failed(report: pytest.TestReport, text: str) -> None:
    if hasattr(report, "wasxfail"):
        del report.wasxfail
    report.outcome = "failed"
    report.longrepr = text


def _add_section(report: pytest.TestReport, text: str) -> None:
    if text not in str(report.longrepr):
        report.sections.append(("sparkperf", text))
