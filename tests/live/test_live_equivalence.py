"""Output equivalence on real vLLM: speculation leaves the text as it is, and a dead engine is named."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from left_processes import assert_nothing_left
from vllm_serve import SERVED_NAME, LiveServers

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.equivalence_report import EquivalenceReport, report_lines
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.question import Question, user_message
from pytest_sparkperf.core.same_output import Line
from pytest_sparkperf.core.tool_set import forced_questions, tool_questions
from pytest_sparkperf.experiment.answers import OpenServer, QuestionSet
from pytest_sparkperf.experiment.equivalence import Plan, compare_outputs

pytestmark = pytest.mark.timeout(900)

TOKENS = 128
CHAT = (
    "Tell me about assert.",
    "Explain global in Python",
    "What is while?",
    "truth",
    "Tell me about integers.",
    "Write a haiku about rain",
)
RAW = (
    "Floating point literals\n",
    'The "while" statement\n',
    "Integer literals are described by the following",
    "Dictionaries are",
    "Once upon a time",
    "def f(x):\n    return",
)
# Acceptance measured on these prompts at this length, with another client.
ACCEPTANCE = {1: 0.722, 2: 0.637, 3: 0.535}


def questions() -> tuple[Question, ...]:
    chat = [
        Question(f"chat-{at}", user_message(text, ignore_eos=True), max_tokens=TOKENS, thinking=True)
        for at, text in enumerate(CHAT)
    ]
    raw = [
        Question(
            f"raw-{at}",
            FrozenMap({"prompt": text, "ignore_eos": True}),
            endpoint="completions",
            max_tokens=TOKENS,
        )
        for at, text in enumerate(RAW)
    ]
    return (*chat, *raw)


def run(plan: Plan, servers: LiveServers, k: int) -> EquivalenceReport:
    def opener(k: int) -> Callable[[], AbstractAsyncContextManager[OpenServer]]:
        @asynccontextmanager
        async def open_server() -> AsyncIterator[OpenServer]:
            server = servers(k)
            async with open_async_client(server.url) as client:
                yield OpenServer(client, SERVED_NAME, k, server.log_path)

        return open_server

    return asyncio.run(compare_outputs(plan, opener(0), opener(k), names=("k=0", f"k={k}")))


def line(report: EquivalenceReport, name: str) -> Line:
    return next(one for one in report.lines if one.name == name)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_twelve_prompts_are_equal_at_each_k(live_server: LiveServers, k: int) -> None:
    plan = Plan((QuestionSet("plain", questions()),), conversation=False)

    report = run(plan, live_server, k)

    assert line(report, "plain").count("equal") == 12, "\n".join(report_lines(report))
    assert report.acceptance is not None
    assert report.acceptance.k == k
    assert report.acceptance.rate == pytest.approx(ACCEPTANCE[k], abs=0.03)


def test_four_at_once_are_no_worse_than_off_against_itself_and_tool_calls_are_equal(
    live_server: LiveServers,
) -> None:
    tools = tool_questions(max_tokens=160, thinking=True)
    plan = Plan(
        (
            QuestionSet("plain, 4 at once", questions(), 4),
            QuestionSet("tool calls", tools, by_value=True, again=True),
        ),
        conversation_tokens=96,
        check=schema_check(),
    )

    report = run(plan, live_server, 3)

    text = "\n".join(report_lines(report))
    assert report.verdict.outcome == "PASS", text
    single = line(report, "tool calls").items[0]
    assert single.subject is not None
    assert single.subject.kind == "equal"
    assert single.on_faults == ()
    # MTP on a CPU needs prefix caching off, so there is no warm cache to compare with.
    assert line(report, "conversation, warm cache").outcome is None
    assert line(report, "tool calls, after the conversation").outcome == "PASS"


def test_the_death_of_the_engine_is_named_with_its_log(live_server: LiveServers) -> None:
    forced = QuestionSet("forced tool calls", forced_questions(max_tokens=160), by_value=True)
    plan = Plan((), (forced,), conversation=False, check=schema_check())

    try:
        report = run(plan, live_server, 3)
    finally:
        live_server.stop()  # the next test must not be handed a dead server

    assert report.verdict.outcome == "FAIL"
    assert line(report, "forced tool calls").items[0].on_faults[0].name == "error_object"
    (death,) = report.deaths
    assert death.startswith("the server died at tool-required (error_object: ")
    assert "its log says: RuntimeError: The size of tensor a" in death


DEADLY = """
from pytest_sparkperf import sparkperf

SHORT = {"max_tokens": 16, "thinking": False}

@sparkperf(k=3, against={"k": 0}, same_output=SHORT, prompt_tokens=64, output_tokens=8, max_rounds=3)
def test_it(): ...
"""


@pytest.mark.soak
def test_a_gate_reports_the_death_of_the_engine_and_leaves_nothing_running(
    live_server: LiveServers, live_config: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    live_server.stop()  # the suite starts its own, and there is memory for two
    shutil.copy(live_config, pytester.path / "sparkperf.yaml")
    pytester.makepyfile(test_it=DEADLY)

    result = pytester.runpytest_subprocess("--sparkperf", "-p", "no:cacheprovider")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "FAIL same_output: *engine_death*",
            "  plain: PASS 12 of 12 equal, *",
            "  the server died at * (*; its log says: RuntimeError: The size of tensor a*",
            "  | *EngineCore*",
        ]
    )
    assert_nothing_left(pytester.path)
