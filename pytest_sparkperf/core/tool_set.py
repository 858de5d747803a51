"""The built-in questions with tools and structured answers: small, and each a way in which these break."""

from __future__ import annotations

from typing import Any

from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.question import Question, user_message


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_TEXT = {"type": "string"}
WEATHER = _tool(
    "get_weather",
    "Get the weather of one city",
    {"city": _TEXT, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    ["city"],
)
TRAINS = _tool(
    "find_trains",
    "Find trains between two cities on a day",
    {"from": _TEXT, "to": _TEXT, "date": _TEXT, "first_class": {"type": "boolean"}},
    ["from", "to"],
)
EVENT = _tool(
    "create_event",
    "Put an event into the calendar",
    {
        "title": _TEXT,
        "when": {
            "type": "object",
            "properties": {"date": _TEXT, "time": _TEXT, "minutes": {"type": "integer", "minimum": 1}},
            "required": ["date", "time"],
        },
        "guests": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": _TEXT, "email": _TEXT}, "required": ["name"]},
        },
        "reminders": {"type": "array", "items": {"type": "integer"}},
    },
    ["title", "when", "guests"],
)
WRITE_FILE = _tool("write_file", "Write a whole file", {"path": _TEXT, "content": _TEXT}, ["path", "content"])
TOOLS = (WEATHER, TRAINS, EVENT, WRITE_FILE)

CITY_SCHEMA = FrozenMap(
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "population": {"type": "integer", "minimum": 0},
            "rivers": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city", "population"],
        "additionalProperties": False,
    }
)
DATE_PATTERN = r"\d{4}-\d{2}-\d{2}"

_MEETING_TASK = (
    "Put a planning meeting with Ann (ann@example.org) and Bo into my calendar, on 2031-04-02 at 09:30 for "
    "45 minutes, with reminders 10 and 60 minutes before."
)
_LONG_TASK = (
    "Write the file notes/garden.md. It shall hold a guide of at least three hundred words to a small "
    "vegetable garden: one section each on soil, sowing, watering and harvest, each with a heading, a list "
    'and one sentence in "double quotes". Call write_file with the whole text.'
)


def tool_questions(*, max_tokens: int = 512, thinking: bool = False) -> tuple[Question, ...]:
    """Return the questions that leave the call to the model (``tool_choice`` auto)."""
    asked: tuple[tuple[str, str, tuple[dict[str, Any], ...]], ...] = (
        ("single", "What is the weather in Paris?", (WEATHER,)),
        ("choice", "When do trains go from Pisa to Lucca tomorrow? Look it up.", TOOLS),
        (
            "parallel",
            "Compare the weather in Oslo, Cairo and Lima: call get_weather once for each of them.",
            (WEATHER,),
        ),
        (
            "nested",
            _MEETING_TASK,
            (EVENT,),
        ),
        ("long", _LONG_TASK, (WRITE_FILE,)),
    )
    return tuple(
        Question(
            f"tool-{name}",
            user_message(text, tools=list(tools), tool_choice="auto"),
            max_tokens=2 * max_tokens if name == "long" else max_tokens,
            thinking=thinking,
        )
        for name, text, tools in asked
    )


def forced_questions(*, max_tokens: int = 256) -> tuple[Question, ...]:
    """Return the questions that force a call, by ``tool_choice`` required and by name."""
    named = {"type": "function", "function": {"name": "find_trains"}}
    both = [WEATHER, TRAINS]
    return (
        Question(
            "tool-required",
            user_message("What is the weather in Rome?", tools=both, tool_choice="required"),
            max_tokens=max_tokens,
            calls=True,
        ),
        Question(
            "tool-named",
            user_message("From Turin to Milan on 2031-05-01, please.", tools=both, tool_choice=named),
            max_tokens=max_tokens,
            calls=True,
        ),
    )


def structured_questions(*, max_tokens: int = 256, thinking: bool = False) -> tuple[Question, ...]:
    """Return the questions whose content must follow a JSON schema or a regular expression."""
    answer_format = {
        "type": "json_schema",
        "json_schema": {"name": "city", "schema": CITY_SCHEMA, "strict": True},
    }
    cities = ("Turin", "Vienna", "Cairo", "Osaka")
    schema = tuple(
        Question(
            f"schema-{city.lower()}",
            user_message(
                f"Describe {city} as JSON: city, population, rivers.", response_format=answer_format
            ),
            max_tokens=max_tokens,
            thinking=thinking,
            schema=CITY_SCHEMA,
        )
        for city in cities
    )
    pattern = Question(
        "regex-date",
        user_message(
            "On which day did people first walk on the moon? Answer as YYYY-MM-DD.",
            structured_outputs={"regex": DATE_PATTERN},
        ),
        max_tokens=max_tokens,
        thinking=thinking,
        pattern=DATE_PATTERN,
    )
    return (*schema, pattern)
