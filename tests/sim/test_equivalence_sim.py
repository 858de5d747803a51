"""Output equivalence against simulated servers: clean ones are equal on every line, each fault is named."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest
from simulator_process import SimProcess, StartSimulator
from stream_reader import call

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.compared import CONVERSATION, after_name
from pytest_sparkperf.core.equivalence_report import EquivalenceReport, report_lines
from pytest_sparkperf.core.question import Question, plain_questions
from pytest_sparkperf.core.same_output import Line
from pytest_sparkperf.core.tool_set import forced_questions, structured_questions, tool_questions
from pytest_sparkperf.experiment.answers import OpenServer, QuestionSet
from pytest_sparkperf.experiment.equivalence import Plan, compare_outputs, default_plan

NAME = "tiny"
FLAGS = (
    *("--served-model-name", NAME, "--unpaced", "--jit-s", "0"),
    *("--max-model-len", "16384", "--enable-auto-tool-choice"),
)
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')
# In the default suite; SPARKPERF_CLEAN_RUNS says how many the slow test does.
CLEAN_RUNS = 20
MANY_CLEAN_RUNS = int(os.environ.get("SPARKPERF_CLEAN_RUNS", "200"))
_AT_ONCE = 4

Faults = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Pair:
    """One server without speculation and one with it."""

    off: SimProcess
    on: SimProcess


@pytest.fixture(scope="module")
def pair(simulator: StartSimulator) -> Pair:
    return Pair(simulator(*FLAGS), simulator(*FLAGS, *MTP))


@pytest.fixture
def faulty(pair: Pair) -> Iterator[Callable[[Faults, Faults], Pair]]:
    """Switch faults on, those of off and those of on; all are off again after the test."""

    def switch(off: Faults, on: Faults) -> Pair:
        for server, faults in ((pair.off, off), (pair.on, on)):
            for name, value in faults.items():
                assert call(server.url, "/sparkperf_sim/faults", {"name": name, "value": value}).status == 200
        return pair

    yield switch
    for server in (pair.off, pair.on):
        for name in call(server.url, "/sparkperf_sim/faults").json():
            call(server.url, "/sparkperf_sim/faults", {"name": name, "value": None})


async def compare(
    plan: Plan, pair: Pair, second_off: SimProcess | None = None, *, caching: bool | None = None
) -> EquivalenceReport:
    def opened(server: SimProcess, k: int) -> AbstractAsyncContextManager[OpenServer]:
        @asynccontextmanager
        async def open_server() -> AsyncIterator[OpenServer]:
            async with open_async_client(server.url) as client:
                yield OpenServer(client, NAME, k, server.log_path, caching)

        return open_server()

    second = None if second_off is None else lambda: opened(second_off, 0)
    return await compare_outputs(plan, lambda: opened(pair.off, 0), lambda: opened(pair.on, 3), second)


def run(plan: Plan, pair: Pair, second_off: SimProcess | None = None) -> EquivalenceReport:
    return asyncio.run(compare(plan, pair, second_off))


def plan_of(
    questions: tuple[Question, ...],
    *,
    by_value: bool = False,
    conversation: bool = False,
    again: bool = False,
) -> Plan:
    one = QuestionSet("line", questions, by_value=by_value, again=again)
    return Plan((one,), conversation=conversation, conversation_tokens=128, check=schema_check())


def plain(count: int = 4, max_tokens: int = 32) -> Plan:
    return plan_of(plain_questions(count=count, max_tokens=max_tokens))


def tools() -> Plan:
    return plan_of(tool_questions(max_tokens=512), by_value=True)


def names(line: Line) -> set[str]:
    """Return what was found in a line: faults of answers with speculation, and names of differences."""
    differences = [item.subject.difference for item in line.items if item.subject is not None]
    found = {name.split(" ")[0].rstrip(":") for one in differences if one is not None for name in one.names}
    return found | {finding.name for item in line.items for finding in item.on_faults}


def kinds(line: Line) -> set[str]:
    return {item.subject.kind for item in line.items if item.subject is not None}


async def clean_runs(pairs: list[Pair], runs: int, max_tokens: int) -> list[EquivalenceReport]:
    """Compare each pair again and again, all pairs at the same time; each fourth run with thinking."""
    check = schema_check()
    plans = [
        default_plan(concurrency=4, thinking=at % 4 == 0, max_tokens=max_tokens, check=check)
        for at in range(runs)
    ]

    async def of_pair(pair: Pair) -> list[EquivalenceReport]:
        return [await compare(plan, pair) for plan in plans]

    found = await asyncio.gather(*(of_pair(pair) for pair in pairs))
    return [report for reports in found for report in reports]


def clean_pairs(simulator: StartSimulator) -> list[Pair]:
    """Return pairs whose drafts have different luck, with drafts of different lengths."""
    pairs = []
    for at in range(_AT_ONCE):
        config = f'{{"method":"mtp","num_speculative_tokens":{1 + at}}}'
        seeded = (*FLAGS, "--seed", str(at))
        pairs.append(Pair(simulator(*seeded), simulator(*seeded, "--speculative-config", config)))
    return pairs


def assert_clean(report: EquivalenceReport) -> None:
    text = "\n".join(report_lines(report))
    assert {line.outcome for line in report.lines} == {"PASS"}, text
    assert all(line.count("equal") == len(line.items) for line in report.lines), text
    assert {name for line in report.lines for name in names(line)} == set(), text
    assert (report.verdict.outcome, report.deaths) == ("PASS", ()), text


def test_clean_servers_are_equal_on_every_line(pair: Pair) -> None:
    report = run(default_plan(concurrency=4, max_tokens=64, check=schema_check()), pair)

    assert_clean(report)
    assert len(report.lines) == 11
    assert report.acceptance is not None
    assert report.acceptance.k == 3


@pytest.mark.slow
def test_twenty_clean_runs_find_nothing(simulator: StartSimulator) -> None:
    reports = asyncio.run(clean_runs(clean_pairs(simulator), CLEAN_RUNS // _AT_ONCE, max_tokens=8))

    assert len(reports) == CLEAN_RUNS
    for report in reports:
        assert_clean(report)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_clean_runs_find_nothing(simulator: StartSimulator) -> None:
    reports = asyncio.run(clean_runs(clean_pairs(simulator), MANY_CLEAN_RUNS // _AT_ONCE, max_tokens=64))

    assert len(reports) == MANY_CLEAN_RUNS
    for report in reports:
        assert_clean(report)


def test_a_server_without_a_prefix_cache_leaves_the_warm_line_unjudged(simulator: StartSimulator) -> None:
    cold = simulator(*FLAGS, "--no-enable-prefix-caching")

    (line,) = asyncio.run(compare(Plan((), conversation_tokens=8), Pair(cold, cold), caching=False)).lines

    assert (line.name, line.outcome, line.reason) == (CONVERSATION, None, "prefix caching is off on off")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("error_after", "error_object"), ("truncate_after", "truncated")],
)
def test_a_fault_of_the_server_with_speculation_is_named(
    faulty: Callable[[Faults, Faults], Pair], fault: str, reason: str
) -> None:
    report = run(plain(), faulty({}, {fault: 5}))

    (line,) = report.lines
    assert line.outcome == "FAIL"
    assert names(line) == {reason}
    assert report.deaths == ()


def test_a_sure_divergence_is_found_with_its_place_and_gaps(
    faulty: Callable[[Faults, Faults], Pair],
) -> None:
    (line,) = run(plain(), faulty({}, {"diverge_after": 9})).lines

    assert (line.outcome, line.reason) == ("FAIL", "4 of 4 answers diverge, off against itself 0")
    for item in line.items:
        assert item.subject is not None
        assert item.systematic
        difference = item.subject.difference
        assert difference is not None
        assert (item.subject.kind, difference.position) == ("divergent", 9)
        assert difference.second_gap is not None
        assert difference.second_gap > 1


def test_a_near_tie_is_told_from_a_divergence(faulty: Callable[[Faults, Faults], Pair]) -> None:
    (line,) = run(plain(), faulty({"tie_at": 9}, {"tie_flip_at": 9})).lines

    assert line.outcome == "PASS"
    assert kinds(line) == {"near_tie"}
    for item in line.items:
        assert item.subject is not None
        assert item.subject.difference is not None
        assert item.subject.difference.position == 9
        assert item.subject.difference.first_gap == pytest.approx(0.005)


def test_a_divergence_no_worse_than_the_control_is_reported_not_failed(
    faulty: Callable[[Faults, Faults], Pair],
) -> None:
    (line,) = run(plain(), faulty({"unsteady_after": 9}, {"diverge_after": 9})).lines

    assert line.outcome == "PASS"
    assert line.reason == "4 of 4 answers diverge, no worse than off against itself 4"


def test_text_that_hangs_on_the_start_of_a_server_is_called_launch(simulator: StartSimulator) -> None:
    launched = (*FLAGS, "--fault", "launch_after=9")
    off, on, again = (simulator(*launched, *more, fresh=True) for more in ((), MTP, ()))

    report = run(plain(), Pair(off, on), again)

    (line,) = report.lines
    assert report.second_start
    assert (line.outcome, kinds(line)) == ("PASS", {"launch"})


@pytest.mark.parametrize(
    ("fault", "value", "name"),
    [
        ("lost_delta", 9, "lost_delta"),
        ("lost_text", 9, "lost_delta"),
        ("doubled_delta", 9, "doubled_delta"),
        ("doubled_text", 9, "doubled_delta"),
    ],
)
def test_a_lost_or_doubled_delta_is_named(
    faulty: Callable[[Faults, Faults], Pair], fault: str, value: int, name: str
) -> None:
    (line,) = run(plain(max_tokens=64), faulty({}, {fault: value})).lines

    assert line.outcome == "FAIL"
    assert names(line) == {name}


@pytest.mark.parametrize(
    ("fault", "value", "name"),
    [
        ("altered_argument", True, "altered_arguments"),
        ("leak", True, "tool_call_leak"),
        ("lost_delta", 5, "lost_delta"),
        ("lost_text", 5, "lost_delta"),
        ("doubled_delta", 5, "doubled_delta"),
        ("doubled_text", 5, "doubled_delta"),
    ],
)
def test_what_breaks_a_tool_call_is_named(
    faulty: Callable[[Faults, Faults], Pair], fault: str, value: object, name: str
) -> None:
    (line,) = run(tools(), faulty({}, {fault: value})).lines

    assert line.outcome == "FAIL"
    assert name in names(line)


def test_tool_calls_that_only_a_warm_cache_breaks_fail_the_warm_line(
    faulty: Callable[[Faults, Faults], Pair],
) -> None:
    plan = plan_of(tool_questions(max_tokens=512), by_value=True, conversation=True, again=True)

    lines = {line.name: line for line in run(plan, faulty({}, {"warm_breaks": True})).lines}

    assert {name: line.outcome for name, line in lines.items()} == {
        "line": "PASS",
        CONVERSATION: "FAIL",
        after_name("line"): "PASS",
    }
    assert names(lines[CONVERSATION]) == {"altered_arguments"}


def test_repetition_is_flagged_on_the_arm_that_repeats(faulty: Callable[[Faults, Faults], Pair]) -> None:
    report = run(plain(max_tokens=64), faulty({}, {"repeat_after": 9}))

    assert report.flags == {"off": "", "on": "degenerate 4/4"}
    assert report.lines[0].outcome == "FAIL"


@pytest.mark.parametrize(
    ("trigger", "questions", "where"),
    [("required", forced_questions(), "tool-required"), ("schema", structured_questions(), "schema-turin")],
)
def test_an_engine_that_dies_is_reported_with_its_log(
    simulator: StartSimulator, pair: Pair, trigger: str, questions: tuple[Question, ...], where: str
) -> None:
    dying = simulator(*FLAGS, *MTP, "--fault", f"engine_death_on={trigger}", fresh=True)

    report = run(plan_of(questions, by_value=True), Pair(pair.off, dying))

    (line,), (death,) = report.lines, report.deaths
    assert line.outcome == "FAIL"
    assert names(line) == {"error_object", "engine_death"}
    assert death.startswith(f"the server died at {where} (error_object: EngineCore encountered an issue.")
    assert "RuntimeError: a grammar met draft tokens (simulated by fault engine_death_on)" in death
    assert dying.wait() == 1
