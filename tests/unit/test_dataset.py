"""Prompts from files: what is read of ShareGPT and JSON lines, and the line of every fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.dataset_file import dataset_digest, read_dataset
from pytest_sparkperf.core.dataset import Row, parse_dataset
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.prompts import Prompt

SMALL = Path(__file__).parents[1] / "data" / "sharegpt_small.json"
LINE = (
    'give {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}, and "output_tokens" where '
    "the length of its answer is known"
)
SHAREGPT = 'give {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}'
GOOD = '{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}'


def fault_of(text: str, name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_dataset(text, name)
    return str(caught.value)


def test_a_line_is_a_prompt_or_messages_with_a_length_or_without() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
    ]
    lines = ['{"prompt": "Hello", "other": 1}', "", json.dumps({"messages": messages, "output_tokens": 7})]

    dataset = parse_dataset("\n".join(lines) + "\n", "own.jsonl")

    history = (("system", "Be brief."), ("user", "One?"), ("assistant", "Two."))
    assert dataset.rows == (
        Row(Prompt("line-1", "Hello")),
        Row(Prompt("line-3", "Three?", history, 7)),
    )


def test_the_first_exchange_of_a_conversation_is_taken_and_others_are_counted() -> None:
    dataset = read_dataset(SMALL)

    assert (len(dataset.rows), dataset.skipped) == (12, 2)
    assert dataset.rows[2].prompt.text.startswith("What is the difference between weather and climate?")
    assert dataset.rows[2].answer is not None
    assert dataset.rows[2].answer.endswith("your wardrobe by the climate.")
    assert [row.prompt.name for row in dataset.rows[3:5]] == ["sharegpt-4", "sharegpt-6"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"prompt": "a"}\n{"promt": "b"}\n', '2: {"promt": "b"} is not one prompt; ' + LINE),
        ("\n\nhello\n", "3: 'hello' is not JSON (Expecting value); " + LINE),
        ("[1]\n", "1: [1] is not one prompt; " + LINE),
        ('{"prompt": " "}', '1: prompt is " ", which is not a text; ' + LINE),
        (
            '{"prompt": "a", "output_tokens": 0}',
            "1: output_tokens is 0, which is not a whole number above 0; give tokens, or leave it out",
        ),
        (
            '{"messages": [{"role": "robot", "content": "a"}]}',
            (
                '1: {"role": "robot", "content": "a"} is not a message; give role (system, user, assistant) '
                "and a text as content"
            ),
        ),
        (
            '{"messages": [{"role": "assistant", "content": "a"}]}',
            "1: the last of messages is not the user's, so there is nothing to answer; end with one",
        ),
        ("\n", "1: the file holds no prompt; " + LINE),
    ],
)
def test_what_is_wrong_with_a_line(text: str, fault: str) -> None:
    assert fault_of(text, "own.jsonl") == f"own.jsonl:{fault}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{}", f"1: the file is not a JSON list; write one of conversations, {SHAREGPT}"),
        (f"[{GOOD},\n{GOOD},\n 3]", f"3: 3 is not a conversation; {SHAREGPT}"),
        (
            f"[\n{GOOD},\n{{oops",
            f"3: this is not JSON (Expecting property name enclosed in double quotes); {SHAREGPT}",
        ),
        (
            f"[\n{GOOD}\n{GOOD}]",
            "3: the list of conversations does not go on with a comma, nor end with a bracket",
        ),
        (f"[{GOOD}]\n]", "1: something follows the list of conversations; leave it out"),
        (
            '[\n{"conversations": [{"from": "human"}]}]',
            f'2: {{"from": "human"}} is not a turn of a conversation; {SHAREGPT}',
        ),
        ('[{"conversations": []}]', f"1: the file holds no prompt (1 begin otherwise); {SHAREGPT}"),
    ],
)
def test_what_is_wrong_with_a_conversation(text: str, fault: str) -> None:
    assert fault_of(text, "s.json") == f"s.json:{fault}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_dataset(tmp_path / "none.json")

    assert str(caught.value) == (
        f"dataset none.json: cannot be read: no such file or directory ({tmp_path}/none.json); name a "
        "readable file"
    )


def test_a_file_in_another_encoding_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n')

    with pytest.raises(ConfigError) as caught:
        read_dataset(path)

    assert str(caught.value) == "latin.jsonl:2: the text is not UTF-8; save the file as UTF-8"


def test_a_changed_file_is_read_again_and_has_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a"}\n')
    first = read_dataset(path), dataset_digest(path)
    path.write_text('{"prompt": "another"}\n')

    assert read_dataset(path).rows[0].prompt.text == "another"
    assert dataset_digest(path) != first[1]
