"""The conversation: tool turns that happen whatever the model says, each longer than the one before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from equivalence_data import answer, calls

from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.conversation_set import TURNS, ask, continued, opening, usable_calls
from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.result import RequestResult

SILENT = answer("I do not know.")


def held(*answers: RequestResult) -> list[dict[str, Any]]:
    """Return the messages after turns answered so, as they are sent."""
    history = opening()
    for at, one in enumerate(answers):
        history = continued(history, at, one)
    return list(thaw(history))


def test_there_are_six_tool_turns_or_more() -> None:
    assert len(TURNS) >= 6


def test_scripted_calls_fit_their_tools() -> None:
    check = schema_check()
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in ask(opening(), 0).tools}

    assert [check(thaw(turn.arguments), tools[turn.name]) for turn in TURNS] == [()] * len(TURNS)


def test_every_turn_begins_with_the_whole_turn_before() -> None:
    history = opening()
    before = ask(history, 0).body("m")["messages"]
    for at in range(1, len(TURNS)):
        history = continued(history, at - 1, SILENT)
        now = ask(history, at).body("m")["messages"]
        assert now[: len(before)] == before
        assert [message["role"] for message in now[len(before) :]] == ["assistant", "tool", "user"]
        before = now


def test_the_servers_own_call_goes_into_the_history() -> None:
    own = answer("Let me see.", tool_calls=calls(("get_weather", '{"city":"Rome"}')))

    said, result = held(own)[2:]

    assert said["content"] == "Let me see."
    assert said["tool_calls"] == [
        {
            "id": "call_0_get_weather",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'},
        }
    ]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_0_get_weather")


def test_parallel_calls_get_a_result_each() -> None:
    own = answer(tool_calls=calls(("get_weather", '{"city":"Rome"}'), ("get_weather", '{"city":"Oslo"}')))

    roles = [message["role"] for message in held(own)]

    assert roles == ["system", "user", "assistant", "tool", "tool"]


@pytest.mark.parametrize(
    "unusable",
    [
        SILENT,
        answer(tool_calls=calls(("get_weather", '{"city": "Ro'))),
        answer(tool_calls=calls(("get_weather", '"Rome"'))),
        answer(tool_calls=calls(("no_such_tool", "{}"))),
    ],
)
def test_the_script_stands_in_for_a_call_that_cannot_be_used(unusable: RequestResult) -> None:
    assert usable_calls(unusable) == []

    said = held(unusable)[2]

    assert said["content"] == ""
    (call,) = said["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Genoa", "unit": "celsius"}


def test_material_makes_the_beginning_longer() -> None:
    prompts = shipped_prompts(1)[:2]

    (message,) = opening(prompts)

    assert all(prompt.text in message["content"] for prompt in prompts)
    assert message["content"].startswith(opening()[0]["content"])
