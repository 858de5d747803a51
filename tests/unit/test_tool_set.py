"""The built-in questions: each kind is there, and their schemas are valid."""

from __future__ import annotations

import re

import pytest

from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.question import Question
from pytest_sparkperf.core.tool_set import (
    DATE_PATTERN,
    TOOLS,
    forced_questions,
    structured_questions,
    tool_questions,
)

ALL = (*tool_questions(), *forced_questions(), *structured_questions())


def test_every_kind_is_asked_once() -> None:
    assert [question.name for question in ALL] == [
        "tool-single",
        "tool-choice",
        "tool-parallel",
        "tool-nested",
        "tool-long",
        "tool-required",
        "tool-named",
        "schema-turin",
        "schema-vienna",
        "schema-cairo",
        "schema-osaka",
        "regex-date",
    ]


def test_tool_choice_is_auto_required_and_named() -> None:
    choices = {question.name: question.fields.get("tool_choice") for question in ALL}

    assert {choices[question.name] for question in tool_questions()} == {"auto"}
    assert choices["tool-required"] == "required"
    assert choices["tool-named"] == {"type": "function", "function": {"name": "find_trains"}}
    assert [question.calls for question in forced_questions()] == [True, True]


@pytest.mark.parametrize("question", ALL, ids=lambda question: question.name)
def test_every_schema_is_valid(question: Question) -> None:
    check = schema_check()

    schemas = [tool["function"]["parameters"] for tool in question.tools]
    schemas += [question.schema] if question.schema else []
    for schema in schemas:
        assert check({}, schema) != ()  # something is required everywhere, and the schema itself is sound


def test_schema_and_pattern_are_sent_as_they_are_checked() -> None:
    for question in structured_questions():
        body = question.body("m")
        if question.schema is not None:
            assert body["response_format"]["json_schema"]["schema"] == question.schema
        else:
            assert body["structured_outputs"] == {"regex": question.pattern}


def test_pattern_is_that_of_a_date() -> None:
    assert re.fullmatch(DATE_PATTERN, "1969-07-20")
    assert not re.fullmatch(DATE_PATTERN, "20 July 1969")


def test_names_of_tools_differ() -> None:
    assert len({tool["function"]["name"] for tool in TOOLS}) == len(TOOLS) == 4
