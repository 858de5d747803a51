from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.tool_set import CITY_SCHEMA, TOOLS
from pytest_sparkperf.sim.invent import Inventor, altered, invent_arguments, unknown_keyword
from pytest_sparkperf.sim.words import prompt_digest

DIGESTS = [prompt_digest([number]) for number in range(30)]
SCHEMAS: list[dict[str, Any]] = [
    thaw(CITY_SCHEMA),
    *(tool["function"]["parameters"] for tool in TOOLS),
    {"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 4}, "minItems": 2, "maxItems": 5},
    {"type": "string", "minLength": 20, "maxLength": 22},
    {"type": "string", "pattern": r"^[A-Z]{2}-\d{3}$"},
    {"type": ["boolean", "null"]},
    {"const": {"a": 1}},
    {"enum": ["red", 5, None]},
    {"type": "number", "minimum": -2, "maximum": -1},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_values_are_what_the_schema_allows(schema: dict[str, Any]) -> None:
    check = schema_check()
    assert check is not None
    values = [Inventor(digest, "document").value(schema) for digest in DIGESTS]

    assert [fault for value in values for fault in check(value, schema)] == []
    assert unknown_keyword(schema) is None


def test_values_hang_on_the_digest() -> None:
    first, again, other = (invent_arguments(digest, SCHEMAS[1]) for digest in (DIGESTS[0], *DIGESTS[:2]))

    assert first == again
    assert first != other
    assert invent_arguments(DIGESTS[0], SCHEMAS[1], call=1) != first


def test_arguments_without_a_schema_are_empty() -> None:
    assert invent_arguments(DIGESTS[0], {}) == "{}"


def test_a_long_text_is_long_and_needs_escapes() -> None:
    content = json.loads(invent_arguments(DIGESTS[0], SCHEMAS[4]))["content"]

    assert len(content.split()) > 100
    assert '"' in content
    assert "\n" in content


@pytest.mark.parametrize("tool", TOOLS)
def test_an_altered_argument_is_another_valid_one(tool: dict[str, Any]) -> None:
    check = schema_check()
    assert check is not None
    schema = tool["function"]["parameters"]
    for digest in DIGESTS:
        sound = invent_arguments(digest, schema)

        assert json.loads(altered(sound)) != json.loads(sound)
        assert list(check(json.loads(altered(sound)), schema)) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"a": [{"n": 4}]}', '{"a": [{"n": 5}]}'), ('{"a": true}', '{"a": true}'), ("{}", "{}")],
)
def test_without_a_text_a_number_is_altered(arguments: str, expected: str) -> None:
    assert altered(arguments) == expected


@pytest.mark.parametrize(
    ("schema", "unknown"),
    [
        ({"type": "object", "properties": {"a": {"anyOf": []}}}, "anyOf"),
        ({"type": "array", "items": {"$ref": "#/x"}}, "$ref"),
        ({"type": "date"}, "type 'date'"),
        ("text", "'text'"),
    ],
)
def test_what_is_not_known_is_named(schema: object, unknown: str) -> None:
    assert unknown_keyword(schema) == unknown
