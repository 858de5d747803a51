from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_sparkperf.core.conversation_set import TURNS, ask, opening
from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.tool_set import TRAINS, WEATHER, tool_questions
from pytest_sparkperf.sim.answer import ToolCall
from pytest_sparkperf.sim.toolchoice import tool_calls
from pytest_sparkperf.sim.words import prompt_digest

DIGEST = prompt_digest([1])
EXPECTED = {
    "tool-single": ["get_weather"],
    "tool-choice": ["find_trains"],
    "tool-parallel": ["get_weather"] * 3,
    "tool-nested": ["create_event"],
    "tool-long": ["write_file"],
}


def calls(body: Any, *, automatic: bool = True, altered_argument: bool = False) -> tuple[ToolCall, ...]:
    return tool_calls(thaw(body), DIGEST, automatic=automatic, altered_argument=altered_argument)


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "tools": [WEATHER, TRAINS]} | fields


@pytest.mark.parametrize("question", tool_questions(), ids=lambda question: question.name)
def test_the_built_in_questions_get_the_calls_they_ask_for(question: Any) -> None:
    assert [call.name for call in calls(question.fields)] == EXPECTED[question.name]
    assert calls(question.fields, automatic=False) == ()


@pytest.mark.parametrize("at", range(len(TURNS)))
def test_each_turn_of_the_conversation_is_a_call(at: int) -> None:
    (call,) = calls(ask(opening(), at).fields)

    assert call.name == TURNS[at].name


def test_parallel_calls_have_arguments_of_their_own() -> None:
    several = calls(asked("The weather, once for each of them."))

    assert len({call.arguments for call in several}) == 3


def test_what_no_tool_is_for_is_answered_in_text() -> None:
    assert calls(asked("Tell me a story.")) == ()
    assert calls(asked("The weather?", tools=[])) == ()
    assert calls(asked("The weather?", tool_choice="none")) == ()
    assert calls({"tools": [WEATHER], "messages": [{"role": "tool", "content": "weather"}]}) == ()


def test_a_forced_call_needs_no_fitting_words() -> None:
    named = {"type": "function", "function": {"name": "find_trains"}}

    assert [call.name for call in calls(asked("Hi", tool_choice="required"), automatic=False)] == [
        "get_weather"
    ]
    assert [call.name for call in calls(asked("Hi", tool_choice=named))] == ["find_trains"]


def test_an_altered_argument_is_another_one() -> None:
    body = asked("How is the weather?")
    (sound,), (bent,) = calls(body), calls(body, altered_argument=True)

    assert sound.name == bent.name
    assert json.loads(sound.arguments)["city"] + "s" == json.loads(bent.arguments)["city"]
