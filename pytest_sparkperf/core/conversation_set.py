"""The warm line: one conversation of tool turns, each of which finds the turns before it in the prefix cache.

Both servers are asked the same at every turn. The history is made of the first server's own answers, so that
a later turn reuses the cache of generated tokens as in real use; where it made no usable call, the call that
the script expects stands in, and the tool turn happens all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.frozen import FrozenMap, compact_json
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.question import Question
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.tool_set import EVENT, TRAINS, WEATHER
from pytest_sparkperf.core.toolcheck import read_calls

Message = Mapping[str, Any]

_TOOLS = [WEATHER, TRAINS, EVENT]
_RULES = (
    "You plan journeys for a small travel office. Use the tools for every fact; never guess weather or train "
    "times. Call one tool at a time and keep answers short."
)


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says, the call that is expected, and what its tool returns."""

    user: str
    name: str
    arguments: FrozenMap
    result: FrozenMap


TURNS = (
    Turn(
        "I am in Pisa and would like to see the sea. What is the weather in Genoa?",
        "get_weather",
        FrozenMap({"city": "Genoa", "unit": "celsius"}),
        FrozenMap({"city": "Genoa", "sky": "clear", "temperature": 24, "wind_km_h": 12}),
    ),
    Turn(
        "Good. Which trains go there from Pisa on 2031-06-14?",
        "find_trains",
        FrozenMap({"from": "Pisa", "to": "Genoa", "date": "2031-06-14"}),
        FrozenMap(
            {"trains": [{"leaves": "08:05", "arrives": "09:58"}, {"leaves": "10:05", "arrives": "11:59"}]}
        ),
    ),
    Turn(
        "And what is the weather in Lucca, in case I stay nearby?",
        "get_weather",
        FrozenMap({"city": "Lucca", "unit": "celsius"}),
        FrozenMap({"city": "Lucca", "sky": "rain", "temperature": 19, "wind_km_h": 30}),
    ),
    Turn(
        "Then Genoa it is, with the train at 08:05. Put the journey into my calendar, Ann comes along.",
        "create_event",
        FrozenMap(
            {
                "title": "Journey to Genoa",
                "when": {"date": "2031-06-14", "time": "08:05", "minutes": 113},
                "guests": [{"name": "Ann"}],
            }
        ),
        FrozenMap({"created": True, "id": "event-17"}),
    ),
    Turn(
        "Now the way back: trains from Genoa to Pisa on 2031-06-15, first class if there is any.",
        "find_trains",
        FrozenMap({"from": "Genoa", "to": "Pisa", "date": "2031-06-15", "first_class": True}),
        FrozenMap({"trains": [{"leaves": "17:12", "arrives": "19:04", "first_class": True}]}),
    ),
    Turn(
        "Take it, and put it into the calendar as well.",
        "create_event",
        FrozenMap(
            {
                "title": "Journey home",
                "when": {"date": "2031-06-15", "time": "17:12", "minutes": 112},
                "guests": [{"name": "Ann"}],
            }
        ),
        FrozenMap({"created": True, "id": "event-18"}),
    ),
    Turn(
        "One last thing: how will the weather be in Pisa when we are back?",
        "get_weather",
        FrozenMap({"city": "Pisa", "unit": "celsius"}),
        FrozenMap({"city": "Pisa", "sky": "cloudy", "temperature": 22, "wind_km_h": 8}),
    ),
)


def opening(material: Sequence[Prompt] = ()) -> tuple[Message, ...]:
    """Return the system message; ``material`` makes it as long as a large cache block needs."""
    handbook = "".join(f"\n\n# Handbook, part {at}\n\n{one.text}" for at, one in enumerate(material, start=1))
    return ({"role": "system", "content": _RULES + handbook},)


def ask(history: Sequence[Message], at: int, *, max_tokens: int = 256) -> Question:
    """Return the question of turn ``at``, with everything said before it."""
    messages = [*history, {"role": "user", "content": TURNS[at].user}]
    fields = FrozenMap({"messages": messages, "tools": _TOOLS, "tool_choice": "auto"})
    return Question(f"turn-{at + 1}", fields, max_tokens=max_tokens)


def continued(history: Sequence[Message], at: int, answer: RequestResult) -> tuple[Message, ...]:
    """Return the history after turn ``at``: what was asked, the call made of it, and the tool's result."""
    turn = TURNS[at]
    calls = usable_calls(answer)
    if calls:
        said = {"role": "assistant", "content": answer.text, "tool_calls": calls}
    else:
        calls = [_scripted(at, turn)]
        said = {"role": "assistant", "content": "", "tool_calls": calls}
    result = compact_json(turn.result)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
    return (*history, {"role": "user", "content": turn.user}, said, *results)


def usable_calls(answer: RequestResult) -> list[dict[str, Any]]:
    """Return an answer's tool calls as they go into the history; none where one of them cannot."""
    names = {tool["function"]["name"] for tool in _TOOLS}
    calls = read_calls(answer)
    if any(call.name not in names or not isinstance(call.value, dict) for call in calls):
        return []
    return [
        {
            "id": f"call_{at}_{call.name}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for at, call in enumerate(calls)
    ]


def _scripted(at: int, turn: Turn) -> dict[str, Any]:
    arguments = compact_json(turn.arguments)
    return {
        "id": f"call_{at}_script",
        "type": "function",
        "function": {"name": turn.name, "arguments": arguments},
    }
