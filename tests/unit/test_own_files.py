"""The user's own conversations and tools: passed on as they are, other shapes refused by file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.own_files import read_own_files
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.own_files import NO_FILES, OwnFiles, own_prompts, parse_messages, parse_tools
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.workload import request_body, workload_digest

IMAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
}
HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
SHAPE = '; give a list of messages such as [{"role": "user", "content": "..."}], or a list of such lists'
TOOL_SHAPE = (
    " is no list of tools; give the list that goes into a request, such as "
    '[{"type": "function", "function": {"name": "...", "parameters": {}}}]'
)


def test_conversations_are_sent_in_turn_with_all_tools() -> None:
    conversations = parse_messages(json.dumps([[IMAGE], [HELLO]]), "m")
    files = OwnFiles(conversations, parse_tools(json.dumps([TOOL]), "t"))

    prompts = own_prompts(files, shipped_prompts(1))

    assert [one.name for one in prompts] == ["messages-0", "messages-1", "messages-0", "messages-1"]
    body = request_body(Load(), prompts[0], model="m", salt=None)
    assert (body["messages"], body["tools"]) == ([IMAGE], [TOOL])
    assert workload_digest(Load(), prompts) != workload_digest(Load(), prompts[:2])


def test_one_conversation_needs_no_list_around_it_and_tools_none_of_it() -> None:
    assert thaw(parse_messages(json.dumps([HELLO]), "m")) == [[HELLO]]
    only_tools = OwnFiles(tools=parse_tools(json.dumps([TOOL]), "t"))

    prompt = own_prompts(only_tools, shipped_prompts(1))[0]

    body = request_body(Load(), prompt, model="m", salt=None)
    assert (body["messages"][0]["content"], body["tools"]) == (shipped_prompts(1)[0].text, [TOOL])
    assert own_prompts(NO_FILES, shipped_prompts(1)) == shipped_prompts(1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('"Hi"', f'm.json: conversation 0 is "Hi"{SHAPE}'),
        ("[[]]", f"m.json: conversation 0 is []{SHAPE}"),
        ('[[{"role": "user"}], ["x"]]', f'm.json: conversation 1 is ["x"]{SHAPE}'),
    ],
)
def test_other_shapes_of_messages_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_messages(text, "m.json")

    assert str(error.value) == fault


def test_what_is_no_json_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError) as error:
        parse_messages('[\n{"role": user}\n]', "m.json")

    assert str(error.value) == "m.json:2: this is not JSON (Expecting value); write it as JSON"


@pytest.mark.parametrize("text", ['{"name": "f"}', "[]", '["f"]'])
def test_other_shapes_of_tools_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_tools(text, "t.json")

    assert str(error.value) == f"t.json: {text}{TOOL_SHAPE}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none.json")

    with pytest.raises(ConfigError) as error:
        read_own_files(Load(messages=path))

    assert str(error.value) == (
        f"messages: {path!r} cannot be read (No such file or directory); name a JSON file by its path from "
        "the test's folder"
    )
