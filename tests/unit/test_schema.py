"""Validation against a JSON schema, with the library and without it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.tool_set import CITY_SCHEMA, EVENT

EVENT_SCHEMA = EVENT["function"]["parameters"]


@pytest.mark.parametrize(
    ("value", "schema", "faults"),
    [
        ({"city": "Turin", "population": 850_000}, CITY_SCHEMA, ()),
        ({"city": "Turin", "population": 850_000, "rivers": ["Po"]}, CITY_SCHEMA, ()),
        ({"location": "Turin"}, {"required": ["city"]}, ("$: 'city' is a required property",)),
        (
            {"city": 1, "population": -1},
            CITY_SCHEMA,
            ("$.city: 1 is not of type 'string'", "$.population: -1 is less than the minimum of 0"),
        ),
        (
            {"title": "x", "when": {"date": "d", "time": "t", "minutes": 0}, "guests": []},
            EVENT_SCHEMA,
            ("$.when.minutes: 0 is less than the minimum of 1",),
        ),
    ],
)
def test_faults_name_their_path(value: Any, schema: Any, faults: tuple[str, ...]) -> None:
    assert schema_check()(value, schema) == faults


def test_three_faults_are_enough() -> None:
    schema = {"items": {"type": "integer"}}

    assert len(schema_check()(["a", "b", "c", "d"], schema)) == 3


def test_a_missing_library_is_said_with_the_way_to_install_it() -> None:
    def refuse(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}")

    with pytest.raises(ConfigError) as error:
        schema_check(refuse)

    assert str(error.value) == (
        "tool arguments and structured answers are validated against their JSON schema, which needs the "
        "package jsonschema; install it: pip install 'pytest-sparkperf[mtp]'"
    )


def test_a_schema_that_is_not_valid_is_the_users_to_correct() -> None:
    with pytest.raises(ConfigError) as error:
        schema_check()({}, {"type": "strange"})

    assert str(error.value) == (
        "a JSON schema is not valid at $.type: 'strange' is not valid under any of the given schemas; "
        "correct the schema of the tool or of the response format"
    )
