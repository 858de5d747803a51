from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.tool_set import CITY_SCHEMA, DATE_PATTERN
from pytest_sparkperf.sim.body import RequestError
from pytest_sparkperf.sim.invent import KEYWORDS
from pytest_sparkperf.sim.structured import demands_form, document
from pytest_sparkperf.sim.words import prompt_digest

DIGEST = prompt_digest([1])
SCHEMA = thaw(CITY_SCHEMA)
CITY: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    {"guided_json": SCHEMA},
]


@pytest.mark.parametrize("body", CITY)
def test_a_schema_is_followed_wherever_it_stands(body: dict[str, Any]) -> None:
    text = document(body, DIGEST)

    assert text is not None
    assert set(json.loads(text)) == {"city", "population", "rivers"}
    assert demands_form(body)


@pytest.mark.parametrize(
    "body", [{"structured_outputs": {"regex": DATE_PATTERN}}, {"guided_regex": DATE_PATTERN}]
)
def test_a_pattern_is_followed(body: dict[str, Any]) -> None:
    assert re.fullmatch(DATE_PATTERN, document(body, DIGEST) or "")


def test_one_of_a_choice_is_taken() -> None:
    assert document({"structured_outputs": {"choice": ["yes", "no"]}}, DIGEST) in ("yes", "no")


def test_a_json_object_is_an_object() -> None:
    assert isinstance(json.loads(document({"response_format": {"type": "json_object"}}, DIGEST) or ""), dict)


@pytest.mark.parametrize("body", [{}, {"response_format": {"type": "text"}}, {"structured_outputs": {}}])
def test_without_a_demand_there_is_no_document(body: dict[str, Any]) -> None:
    assert document(body, DIGEST) is None
    assert not demands_form(body)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    (
        {"guided_json": {"anyOf": []}},
        f"The simulator does not support anyOf in a JSON schema. It knows {', '.join(KEYWORDS)}.",
    ),
    (
        {"guided_json": "{"},
        (
            "The JSON schema is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
            "(char 1)."
        ),
    ),
    (
        {"guided_regex": "[^a]"},
        (
            "The simulator cannot write a text for this regular expression: classes of what must not stand "
            "are not known. It knows literals, escapes, classes, groups, alternatives and quantifiers."
        ),
    ),
    (
        {"guided_grammar": "root ::= x"},
        (
            "The simulator does not support structured outputs by grammar='root ::= x'. Use a JSON schema, a "
            "regular expression or a choice."
        ),
    ),
    (
        {"structured_outputs": {"regex": "a", "json": SCHEMA}},
        "You can only use one kind of structured outputs constraint but multiple are specified: regex, json.",
    ),
    (
        {"response_format": {"type": "xml"}},
        (
            "1 validation error:\n  {'type': 'literal_error', 'loc': 'body.response_format', 'msg': 'Input "
            "should be an object of type text, json_object or json_schema', 'input': {'type': 'xml'}}"
        ),
    ),
    (
        {"guided_regex": 5},
        (
            "1 validation error:\n  {'type': 'string_type', 'loc': 'body.structured_outputs.regex', 'msg': "
            "'Input should be a valid string', 'input': 5}"
        ),
    ),
]


@pytest.mark.parametrize(("body", "message"), REFUSALS)
def test_refuses(body: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        document(body, DIGEST)

    assert (caught.value.status, caught.value.message) == (400, message)
