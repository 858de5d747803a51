"""Frozen mappings: equality, hash and JSON."""

from __future__ import annotations

import json
import pickle

from pytest_sparkperf.core.frozen import EMPTY, FrozenMap, compact_json, thaw


def test_equal_whatever_the_order_of_keys() -> None:
    first, second = FrozenMap({"a": 1, "b": {"c": [1, 2]}}), FrozenMap({"b": {"c": (1, 2)}, "a": 1})

    assert first == second
    assert hash(first) == hash(second)
    assert list(first) == ["a", "b"]


def test_values_that_a_command_line_tells_apart_are_different() -> None:
    assert len({FrozenMap({"x": value}) for value in (True, 1, 1.0, "1", None)}) == 5


def test_compares_with_a_plain_dict() -> None:
    assert FrozenMap({"a": [1]}) == {"a": [1]}
    assert FrozenMap({"a": [1]}) != {"a": [2]}
    assert FrozenMap() != 0
    assert EMPTY == {}


def test_nested_values_cannot_be_changed_through_the_original() -> None:
    inner = {"c": [1]}
    frozen = FrozenMap({"b": inner})
    inner["c"].append(2)

    assert frozen == {"b": {"c": [1]}}
    assert frozen["b"]["c"] == (1,)


def test_thaws_to_what_json_takes() -> None:
    frozen = FrozenMap({"b": {"c": [1, None, True]}})

    assert json.loads(compact_json(frozen)) == {"b": {"c": [1, None, True]}}
    assert compact_json(frozen) == '{"b":{"c":[1,null,true]}}'
    assert thaw(frozen) == {"b": {"c": [1, None, True]}}
    assert repr(frozen) == "{'b': {'c': [1, None, True]}}"


def test_survives_pickling() -> None:
    frozen = FrozenMap({"b": {"c": [1]}})

    assert pickle.loads(pickle.dumps(frozen)) == frozen  # noqa: S301 - our own bytes
