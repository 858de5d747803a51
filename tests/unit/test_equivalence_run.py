"""A whole equivalence run against servers in memory: what is asked, and each fault found and named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from memory_vllm import MemoryVllm, Reply, Token, words

from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.equivalence_report import EquivalenceReport, report_lines
from pytest_sparkperf.core.question import Question, user_message
from pytest_sparkperf.core.same_output import Line
from pytest_sparkperf.core.tool_set import WEATHER
from pytest_sparkperf.experiment.answers import OpenServer, QuestionSet
from pytest_sparkperf.experiment.equivalence import Plan, compare_outputs, default_plan

LOGS = Path(__file__).parent.parent / "data" / "logs"
TEXT = "the quick brown fox jumps over the lazy dog and then sleeps until noon"
PLAIN = QuestionSet(
    "plain", tuple(Question(f"p{at}", user_message(f"Say {at}")) for at in range(4)), again=True
)
AT_ONCE = replace(PLAIN, name="plain, 2 at once", concurrency=2, again=False)
TOOLS = QuestionSet(
    "tool calls", (Question("tool", user_message("Weather?", tools=[WEATHER])),), by_value=True, again=True
)
PLAN = Plan((PLAIN, AT_ONCE, TOOLS), check=schema_check())
SHORT = Plan((PLAIN,), conversation=False)
ARGUMENTS = ('{"city"', ': "Ro', 'me"}')


def asks(body: dict[str, Any], text: str) -> bool:
    return bool(body["messages"][-1]["content"] == text)


def sound(body: dict[str, Any], number: int = 0) -> Reply:
    """Call a tool where there are tools, else say the text."""
    if body.get("tools"):
        return Reply(words("let me see"), ("get_weather", ARGUMENTS), finish="tool_calls")
    return Reply(words(TEXT))


def altered(at: int, *candidates: dict[str, float], text: str = "cat ") -> list[Token]:
    """Return the tokens of the text with another one at a position."""
    tokens = words(TEXT)
    tokens[at] = (99_999_999, text, candidates[0] if candidates else {text: -0.01})
    return tokens


def server(change: Any = None, **fields: Any) -> MemoryVllm:
    """Return a server that is sound but for what ``change(body, number)`` says otherwise."""

    def say(body: dict[str, Any], number: int) -> Reply:
        changed = change(body, number) if change else None
        return changed if isinstance(changed, Reply) else sound(body, number)

    return MemoryVllm(say, **fields)


def run(
    on: MemoryVllm, off: MemoryVllm | None = None, second: MemoryVllm | None = None, plan: Plan = PLAN
) -> EquivalenceReport:
    off = off or server()
    return asyncio.run(compare_outputs(plan, off.open, on.open, second.open if second else None))


def line(report: EquivalenceReport, name: str = "plain") -> Line:
    return next(one for one in report.lines if one.name == name)


def outcomes(report: EquivalenceReport) -> dict[str, str | None]:
    return {one.name: one.outcome for one in report.lines}


# ---------------------------------------------------------------- what is asked


def test_sound_servers_are_equal_on_every_line() -> None:
    report = run(server())

    assert outcomes(report) == {
        "plain": "PASS",
        "plain, 2 at once": "PASS",
        "tool calls": "PASS",
        "conversation, warm cache": "PASS",
        "plain, after the conversation": "PASS",
        "tool calls, after the conversation": "PASS",
    }
    assert report.verdict.reason == "21 of 21 answers equal"
    assert report.acceptance is not None
    assert report.acceptance.rate == pytest.approx(2 / 3)
    assert report.deaths == ()


def test_off_is_asked_twice_and_on_once_while_all_is_equal() -> None:
    off, on = server(), server()

    run(on, off, server(), SHORT)

    assert [("logprobs" in body) for body in off.bodies] == [False] * 4 + [True] * 4
    assert [("logprobs" in body) for body in on.bodies] == [False] * 4


def test_single_shots_share_no_salt_and_a_conversation_shares_one() -> None:
    on = server()

    run(on)

    salts = [body["cache_salt"] for body in on.bodies]
    talk = [body["cache_salt"] for body in on.bodies if body["messages"][0]["role"] == "system"]
    assert len(talk) == 7
    assert len(set(talk)) == 1
    assert len(set(salts)) == len(salts) - 6


def test_both_arms_are_asked_the_same_conversation() -> None:
    off, on = server(), server()

    run(on, off)

    talks = [
        [body["messages"] for body in one.bodies if body["messages"][0]["role"] == "system"]
        for one in (off, on)
    ]
    assert talks[0][:7] == talks[0][7:] == talks[1]


def test_default_plan_holds_every_line_of_the_design() -> None:
    plan = default_plan(concurrency=4)

    assert [one.name for one in (*plan.sets, *plan.late)] == [
        "plain",
        "plain, 4 at once",
        "plain, thinking",
        "tool calls",
        "tool calls, thinking",
        "structured output",
        "structured output, thinking",
        "forced tool calls",
    ]
    assert plan.conversation
    assert {len(one.questions) for one in plan.sets[:3]} == {12}
    assert [one.max_tokens for one in (plan.sets[0].questions[0], plan.sets[2].questions[0])] == [512, 1024]


def test_plan_without_grammar_asks_nothing_that_needs_one() -> None:
    plan = default_plan(thinking=False, guided=False, own=PLAIN.questions)

    assert [one.name for one in (*plan.sets, *plan.late)] == ["plain", "tool calls", "own messages"]


# ---------------------------------------------------------------- what is found


def diverges(body: dict[str, Any], number: int) -> Reply | None:
    return Reply(altered(3)) if asks(body, "Say 1") else None


def test_a_divergence_fails_with_its_position_and_tokens() -> None:
    report = run(server(diverges), plan=SHORT)

    assert (line(report).outcome, line(report).reason) == (
        "FAIL",
        "1 of 4 answers diverge, off against itself 0",
    )
    text = (
        "    p1: divergent at token 3: 'fox ' (-0.0100) off, 'cat ' (-0.0100) on; gap unknown and unknown; "
        "top two 5.9900 and unknown apart, again and again"
    )
    assert text in report_lines(report)


def near(own: str) -> Any:
    """Return a server's answer to one prompt in which it took one of two tied tokens."""

    def say(body: dict[str, Any], number: int) -> Reply | None:
        tokens = words(TEXT)
        ids = {"fox ": tokens[3][0], "cat ": 99_999_999}
        tokens[3] = (ids[own], own, {"fox ": -0.70, "cat ": -0.71})
        return Reply(tokens) if asks(body, "Say 1") else None

    return say


def test_a_near_tie_is_reported_and_passes_unless_strict() -> None:
    report = run(server(near("cat ")), server(near("fox ")), plan=SHORT)
    strict = run(server(near("cat ")), server(near("fox ")), plan=replace(SHORT, strict=True))

    assert line(report).count("near_tie") == 1
    assert report.verdict.reason == "3 of 4 answers equal, 1 near-ties"
    assert report.verdict.outcome == "PASS"
    assert strict.verdict.outcome == "FAIL"


def test_a_server_that_tells_no_log_probabilities_is_compared_all_the_same() -> None:
    report = run(server(diverges, logprobs=False), server(logprobs=False), plan=SHORT)

    assert line(report).outcome == "FAIL"
    assert line(report).count("equal") == 3


def test_a_divergence_that_off_has_with_itself_passes() -> None:
    def unsteady(body: dict[str, Any], number: int) -> Reply | None:
        return Reply(altered(3)) if asks(body, "Say 1") and number else None

    report = run(server(diverges), server(unsteady), plan=SHORT)

    assert (line(report).outcome, line(report).reason) == (
        "PASS",
        "1 of 4 answers diverge, no worse than off against itself 1",
    )


def test_a_second_start_is_made_only_when_a_divergence_would_fail() -> None:
    unused, used = server(), server()

    assert run(server(), second=unused, plan=SHORT).second_start is False
    report = run(server(diverges), second=used, plan=SHORT)

    assert (unused.opened, used.opened) == (0, 1)
    assert report.second_start is True
    assert line(report).outcome == "FAIL"


def test_a_second_start_that_differs_as_much_excuses_it() -> None:
    report = run(server(diverges), second=server(diverges), plan=SHORT)

    assert line(report).outcome == "PASS"
    assert line(report).count("launch") == 1
    assert report.verdict.reason == "3 of 4 answers equal, 1 as different between two starts of off"


def test_an_altered_argument_is_found() -> None:
    def paris(body: dict[str, Any], number: int) -> Reply | None:
        if not body.get("tools"):
            return None
        return Reply(words("let me see"), ("get_weather", ('{"city"', ': "Paris"}')), finish="tool_calls")

    report = run(server(paris))

    assert line(report, "tool calls").outcome == "FAIL"
    assert line(report, "conversation, warm cache").outcome == "FAIL"
    assert line(report, "plain").outcome == "PASS"
    subject = line(report, "tool calls").items[0].subject
    assert subject is not None
    assert subject.difference is not None
    assert subject.difference.names == (
        'altered_arguments in call 0: \'{"city": "Paris"}\' instead of \'{"city": "Rome"}\'',
    )


@pytest.mark.parametrize(
    ("parts", "name"),
    [((ARGUMENTS[0], ARGUMENTS[2]), "lost_delta"), ((*ARGUMENTS[:2], *ARGUMENTS[1:]), "doubled_delta")],
)
def test_a_lost_or_doubled_delta_of_a_call_is_named(parts: tuple[str, ...], name: str) -> None:
    def change(body: dict[str, Any], number: int) -> Reply | None:
        return Reply(words("let me see"), ("get_weather", parts)) if body.get("tools") else None

    report = run(server(change))

    item = line(report, "tool calls").items[0]
    assert item.subject is not None
    assert item.subject.difference is not None
    assert item.subject.difference.names[0].startswith(f"{name} in call 0")
    assert item.on_faults[0].name == "broken_json"
    assert line(report, "tool calls").outcome == "FAIL"


def test_text_lost_from_the_stream_is_named_though_the_tokens_are_equal() -> None:
    def change(body: dict[str, Any], number: int) -> Reply | None:
        tokens = words(TEXT)
        tokens[4] = (tokens[4][0], "", {})
        return Reply(tokens) if asks(body, "Say 2") else None

    report = run(server(change), plan=SHORT)

    assert any(
        "p2: divergent in content at character 20: lost_delta" in text for text in report_lines(report)
    )


def test_tool_syntax_in_the_content_is_a_leak() -> None:
    def change(body: dict[str, Any], number: int) -> Reply | None:
        return Reply(words("<tool_call> get_weather")) if body.get("tools") else None

    report = run(server(change))

    assert line(report, "tool calls").items[0].on_faults[0].name == "tool_call_leak"
    assert line(report, "tool calls").outcome == "FAIL"


def test_a_fault_that_shows_only_after_the_conversation_is_found_there() -> None:
    talked: list[bool] = []

    def change(body: dict[str, Any], number: int) -> Reply | None:
        talked.append(body["messages"][0]["role"] == "system")
        return Reply(altered(3)) if any(talked) and asks(body, "Say 0") else None

    report = run(server(change))

    assert outcomes(report)["plain"] == "PASS"
    assert outcomes(report)["plain, after the conversation"] == "FAIL"


def test_collapsed_text_is_flagged_on_its_arm() -> None:
    def collapse(body: dict[str, Any], number: int) -> Reply:
        return Reply(words("a " * 20))

    report = run(server(collapse), plan=SHORT)

    assert report.flags == {"off": "", "on": "degenerate 4/4"}
    assert report.verdict.outcome == "FAIL"


# ---------------------------------------------------------------- servers that cannot


@pytest.mark.parametrize(
    ("fields", "outcome", "reason"),
    [
        ({"caching": False}, None, "prefix caching is off on on"),
        ({"counts_hits": False}, "ERROR", "on counts no prefix cache hits"),
    ],
)
def test_a_conversation_that_is_not_proved_warm_is_not_judged(
    fields: dict[str, bool], outcome: str | None, reason: str
) -> None:
    found = line(run(server(**fields)), "conversation, warm cache")

    assert found.outcome == outcome
    assert found.reason.startswith(reason)


def test_a_server_that_dies_is_named_and_asked_nothing_more() -> None:
    on = server(dies_at=3)

    report = run(on)

    assert report.deaths == ("the server died at p2 (error_object: EngineCore died (code 500))",)
    assert len(on.bodies) == 3
    assert outcomes(report) == {
        "plain": "FAIL",
        "plain, 2 at once": None,
        "tool calls": None,
        "conversation, warm cache": None,
        "plain, after the conversation": None,
        "tool calls, after the conversation": None,
    }
    assert line(report).reason == (
        "2 of 4 answers valid, off 4 of 4 (p2: error_object: EngineCore died (code 500); "
        "p3: engine_death: not asked any more)"
    )
    assert line(report, "tool calls").reason == "the server with speculation had died before"
    assert report.acceptance is None


def test_a_dead_reference_is_an_error() -> None:
    report = run(server(), server(dies_at=3), plan=SHORT)

    assert report.verdict.outcome == "ERROR"
    assert report.verdict.reason == "plain: off did not answer p0: it was dead by then"


def test_texts_are_tokenized_where_the_server_gives_no_ids() -> None:
    off, on = server(ids=False), server(diverges, ids=False)

    report = run(on, off, plan=SHORT)

    assert TEXT in [text.strip() for text in off.tokenized]
    item = line(report).items[1]
    assert item.subject is not None
    assert item.subject.difference is not None
    assert (item.subject.difference.position, item.subject.difference.unit) == (3, "token")


def test_a_death_comes_with_its_cause_and_the_logs_last_lines() -> None:
    on = server(dies_at=1)

    @asynccontextmanager
    async def opened() -> AsyncIterator[OpenServer]:
        async with on.open() as one:
            yield replace(one, log_path=LOGS / "cpu_k3_grammar_crash.log", secrets=("EngineDeadError",))

    report = asyncio.run(compare_outputs(SHORT, server().open, opened))

    first, *tail = report.deaths[0].split("\n")
    assert first == (
        "the server died at p0 (error_object: EngineCore died (code 500)); its log says: RuntimeError: "
        "The size of tensor a (6) must match the size of tensor b (5) at non-singleton dimension 1"
    )
    assert len(tail) == 12
    assert all(text.startswith("  | ") for text in tail)
    assert "EngineDeadError" not in report.deaths[0]


def test_a_plan_may_be_shorter_and_stricter() -> None:
    plan = default_plan(max_tokens=64, thinking=False, guided=False, strict=True)

    assert [one.name for one in plan.sets] == ["plain", "tool calls"]
    assert {question.max_tokens for question in plan.sets[0].questions} == {64}
    assert (plan.late, plan.strict, plan.conversation_tokens) == ((), True, 64)
    assert default_plan().conversation_tokens == 256
