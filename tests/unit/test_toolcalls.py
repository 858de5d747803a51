from __future__ import annotations

from pytest_sparkperf.core.toolcalls import ToolCallAssembler, has_substance


def test_fragments_are_joined_by_index_whatever_their_order() -> None:
    calls = ToolCallAssembler()
    calls.add([{"index": 1, "id": "b", "function": {"name": "second", "arguments": ""}}])
    calls.add([{"index": 0, "id": "a", "function": {"name": "first", "arguments": '{"x"'}}])
    calls.add(
        [{"index": 1, "function": {"arguments": "{}"}}, {"index": 0, "function": {"arguments": ": 1}"}}]
    )
    assert calls.assembled() == (
        {"id": "a", "type": "function", "function": {"name": "first", "arguments": '{"x": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "second", "arguments": "{}"}},
    )


def test_a_name_that_every_fragment_repeats_appears_once() -> None:
    calls = ToolCallAssembler()
    for arguments in ("{", "}"):
        calls.add([{"index": 0, "id": "a", "function": {"name": "get", "arguments": arguments}}])
    assert calls.assembled() == (
        {"id": "a", "type": "function", "function": {"name": "get", "arguments": "{}"}},
    )


def test_without_an_index_the_place_in_the_chunk_counts() -> None:
    calls = ToolCallAssembler()
    calls.add([{"function": {"name": "one"}}, {"function": {"name": "two"}}])
    calls.add([{"function": {"arguments": "1"}}, {"function": {"arguments": "2"}}])
    assert [call["function"] for call in calls.assembled()] == [
        {"name": "one", "arguments": "1"},
        {"name": "two", "arguments": "2"},
    ]


def test_an_index_alone_or_empty_fields_are_no_substance() -> None:
    assert not has_substance({"index": 0})
    assert not has_substance({"index": 0, "function": {"arguments": ""}})
    assert not has_substance({"index": 0, "function": None})
    assert has_substance({"index": 0, "function": {"arguments": "{"}})
    assert has_substance({"index": 0, "id": "a"})
