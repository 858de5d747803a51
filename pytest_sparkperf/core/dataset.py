"""Prompts from a user's file, ShareGPT (.json) or JSON lines (.jsonl), each fault with its line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.kinds import COUNT, shortened
from pytest_sparkperf.core.prompts import Prompt

SHAREGPT_ENDING, LINES_ENDING = ".json", ".jsonl"
FILE_ENDINGS = (SHAREGPT_ENDING, LINES_ENDING)

_ASKERS = ("human", "user")
_ANSWERERS = ("gpt", "chatgpt", "bing", "bard", "assistant")
_ROLES = ("system", "user", "assistant")
_LINE_SHAPE = (
    'give {"prompt": "..."} or {"messages": [{"role": "user", "content": "..."}]}, and "output_tokens" '
    "where the length of its answer is known"
)
_SHAREGPT_SHAPE = (
    'give {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}'
)


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a file: its prompt, and the answer that was given to it where the file holds one."""

    prompt: Prompt
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """The entries of one file; ``skipped`` counts conversations without a question and an answer at first."""

    name: str
    rows: tuple[Row, ...]
    skipped: int = 0


class _FaultError(Exception):
    """What is wrong at a place of the text."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


def is_file(dataset: str) -> bool:
    """Tell whether a dataset is named by a file."""
    return dataset.endswith(FILE_ENDINGS)


def names_file(word: str, value: object) -> bool:
    """Tell whether the value of a load's keyword is the path of a file."""
    if not isinstance(value, str):
        return False
    return word in ("messages", "tools") or (word == "dataset" and is_file(value))


def parse_dataset(text: str, name: str) -> Dataset:
    """Read the text of a file called ``name``; raises ConfigError, ``name:12: ...``, for the first fault."""
    try:
        return _parse_lines(text, name) if name.endswith(LINES_ENDING) else _parse_sharegpt(text, name)
    except _FaultError as fault:
        line = text.count("\n", 0, fault.at) + 1
        raise ConfigError(f"{name}:{line}: {fault}") from None


# ---------------------------------------------------------------------- JSON lines
def _parse_lines(text: str, name: str) -> Dataset:
    rows = []
    at = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            rows.append(Row(_line_prompt(_decode(line, at), number, at)))
        at += len(line) + 1
    return _filled(Dataset(name, tuple(rows)), _LINE_SHAPE)


def _decode(line: str, at: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise _FaultError(
            at, f"{shortened(line.strip())!r} is not JSON ({error.msg}); {_LINE_SHAPE}"
        ) from None


def _line_prompt(entry: Any, number: int, at: int) -> Prompt:
    if not isinstance(entry, Mapping) or ("prompt" in entry) is ("messages" in entry):
        raise _FaultError(at, f"{shortened(json.dumps(entry))} is not one prompt; {_LINE_SHAPE}")
    tokens = entry.get("output_tokens")
    if tokens is not None and not COUNT.accepts(tokens):
        raise _FaultError(
            at, f"output_tokens is {tokens!r}, which is not {COUNT.says}; give tokens, or leave it out"
        )
    name = f"line-{number}"
    if "messages" in entry:
        *history, (_, text) = _turns(entry["messages"], at)
        return Prompt(name, text, tuple(history), tokens)
    if not isinstance(entry["prompt"], str) or not entry["prompt"].strip():
        raise _FaultError(
            at, f"prompt is {shortened(json.dumps(entry['prompt']))}, which is not a text; {_LINE_SHAPE}"
        )
    return Prompt(name, entry["prompt"], output_tokens=tokens)


def _turns(messages: Any, at: int) -> list[tuple[str, str]]:
    """Return messages as (role, text); the last must be the user's, since it is what gets answered."""
    turns = []
    for message in messages if isinstance(messages, list) else [None]:
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role not in _ROLES or not isinstance(content, str):
            raise _FaultError(
                at,
                f"{shortened(json.dumps(message))} is not a message; give role ({', '.join(_ROLES)}) and a "
                "text as content",
            )
        turns.append((str(role), content))
    if not turns or turns[-1][0] != "user":
        raise _FaultError(
            at, "the last of messages is not the user's, so there is nothing to answer; end with one"
        )
    return turns


# ---------------------------------------------------------------------- ShareGPT
def _parse_sharegpt(text: str, name: str) -> Dataset:
    rows = []
    skipped = 0
    for number, (at, entry) in enumerate(_entries(text), start=1):
        turns = entry.get("conversations") if isinstance(entry, Mapping) else None
        if not isinstance(turns, list):
            raise _FaultError(at, f"{shortened(json.dumps(entry))} is not a conversation; {_SHAREGPT_SHAPE}")
        exchange = [_said(turn, at) for turn in turns[:2]]
        if [is_asker for is_asker, _ in exchange] == [True, False]:
            rows.append(Row(Prompt(f"sharegpt-{number}", exchange[0][1]), exchange[1][1]))
        else:
            skipped += 1
    return _filled(Dataset(name, tuple(rows), skipped), _SHAREGPT_SHAPE)


def _entries(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the entries of a JSON list with where each begins, so that a fault has a line."""
    decoder = json.JSONDecoder()
    at = _blank(text, 0)
    if text[at : at + 1] != "[":
        raise _FaultError(at, f"the file is not a JSON list; write one of conversations, {_SHAREGPT_SHAPE}")
    at = _blank(text, at + 1)
    while text[at : at + 1] != "]":
        try:
            entry, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise _FaultError(error.pos, f"this is not JSON ({error.msg}); {_SHAREGPT_SHAPE}") from None
        yield at, entry
        at = _blank(text, end)
        if text[at : at + 1] == ",":
            at = _blank(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _FaultError(
                at, "the list of conversations does not go on with a comma, nor end with a bracket"
            )
    if text[at + 1 :].strip():
        raise _FaultError(at, "something follows the list of conversations; leave it out")


def _blank(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _said(turn: Any, at: int) -> tuple[bool | None, str]:
    """Return whether a turn asks (True) or answers (False), and its text; None for another speaker."""
    if (
        not isinstance(turn, Mapping)
        or not isinstance(turn.get("from"), str)
        or not isinstance(turn.get("value"), str)
    ):
        raise _FaultError(
            at, f"{shortened(json.dumps(turn))} is not a turn of a conversation; {_SHAREGPT_SHAPE}"
        )
    speaker = turn["from"]
    return (True if speaker in _ASKERS else False if speaker in _ANSWERERS else None), turn["value"]


def _filled(dataset: Dataset, shape: str) -> Dataset:
    if not dataset.rows:
        skipped = f" ({dataset.skipped} begin otherwise)" if dataset.skipped else ""
        raise _FaultError(0, f"the file holds no prompt{skipped}; {shape}")
    return dataset
