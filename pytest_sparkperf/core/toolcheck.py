"""Checks tool calls and structured answers: what is wrong with one by itself, and what differs between two.

Arguments are compared as parsed values, since ``{"a": 1}`` and ``{"a":1}`` call the same function in the same
way, and a text that parses may still be the wrong one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.result import RequestResult

# Faults of one answer.
BROKEN_JSON = "broken_json"
UNKNOWN_TOOL = "unknown_tool"
SCHEMA_INVALID = "schema_invalid"
PATTERN_MISMATCH = "pattern_mismatch"
TOOL_CALL_LEAK = "tool_call_leak"
NO_TOOL_CALL = "no_tool_call"
# Differences between two answers.
CALL_COUNT = "call_count"
ALTERED_NAME = "altered_name"
ALTERED_ARGUMENTS = "altered_arguments"
LOST_DELTA = "lost_delta"
DOUBLED_DELTA = "doubled_delta"

# What models of the field write around a call; a parser takes it out of the content when all is well.
_TOOL_SYNTAX = re.compile(
    r"</?tool_calls?>|</?function(?:=[^<>\s]*)?>|</?parameter(?:=[^<>\s]*)?>|\[/?TOOL_CALLS\]"
    r"|<\|/?tool_calls?[^|]*\|>|<\|python_tag\|>|<｜tool[^｜]*｜>|</?[a-z]+:tool_call>"
)
_EXCERPT = 60

SchemaCheck = Callable[[Any, Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong, by name; ``call`` is the index of the tool call, ``text`` what was seen."""

    name: str
    text: str = ""
    call: int | None = None

    def __str__(self) -> str:
        where = "" if self.call is None else f" in call {self.call}"
        return f"{self.name}{where}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call: ``value`` are its arguments parsed, ``broken`` says why they are not."""

    name: str
    arguments: str
    value: Any = None
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What an answer is held against: its tools, and the schema or pattern its content must follow.

    ``calls`` demands a tool call. ``check`` validates a value against a JSON schema and returns its faults;
    without it nothing is validated.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    calls: bool = False
    schema: Mapping[str, Any] | None = None
    pattern: str | None = None
    check: SchemaCheck | None = None


def read_calls(answer: RequestResult) -> tuple[Call, ...]:
    """Return an answer's tool calls with their arguments parsed; no arguments at all count as broken."""
    return tuple(_read_call(call.get("function") or {}) for call in answer.tool_calls)


def parse_strict(text: str) -> Any:
    """Parse JSON as a standard reader must; a key that comes twice or a NaN raises ValueError."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def same_value(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; 1 equals 1.0 but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return bool(one == other)


def answer_faults(answer: RequestResult, expected: Expected) -> tuple[Finding, ...]:
    """Return everything that is wrong with one answer by itself.

    An answer that the length limit cut off may end in the middle of its JSON; then only what leaked counts.
    """
    findings = list(_leaks(answer)) if expected.tools else []
    if answer.length_limited:
        return tuple(findings)
    calls = read_calls(answer)
    for index, call in enumerate(calls):
        findings += _call_faults(index, call, expected)
    if expected.calls and not calls:
        findings.append(Finding(NO_TOOL_CALL, f"the answer was {_shown(answer.text)}"))
    if expected.schema is not None:
        findings += _schema_faults(answer.text, expected.schema, expected.check)
    if expected.pattern is not None and not re.fullmatch(expected.pattern, answer.text.strip()):
        findings.append(Finding(PATTERN_MISMATCH, f"{_shown(answer.text)} is not {expected.pattern}"))
    return tuple(findings)


def compare_calls(
    first: RequestResult, second: RequestResult, *, same_tokens: bool | None = None
) -> tuple[Finding, ...]:
    """Return how the second answer's calls differ from the first's, in order; empty where they are equal.

    Where the tokens are the same, the stream or its parser lost or doubled something; where they are not,
    only arguments that no longer parse are called so.
    """
    one, other = read_calls(first), read_calls(second)
    findings = [
        found
        for index, (call, now) in enumerate(zip(one, other, strict=False))
        if (found := _call_difference(index, call, now, same_tokens)) is not None
    ]
    if len(one) != len(other):
        findings.append(Finding(CALL_COUNT, f"{len(other)} calls instead of {len(one)}"))
    return tuple(findings)


def delta_fault(reference: str, seen: str) -> str | None:
    """Return LOST_DELTA where ``seen`` lacks one piece of a reference, DOUBLED_DELTA where one came twice."""
    start = _common(reference, seen)
    end = _common(reference[start:][::-1], seen[start:][::-1])
    if len(seen) < len(reference) and start + end == len(seen):
        return LOST_DELTA
    if len(seen) > len(reference) and start + end == len(reference):
        return DOUBLED_DELTA if _has_copy(reference, seen, start) else None
    return None


def tool_call_leak(text: str) -> str | None:
    """Return the first piece of tool-call syntax in a text; None for clean text."""
    found = _TOOL_SYNTAX.search(text)
    return found[0] if found else None


def _read_call(function: Mapping[str, Any]) -> Call:
    name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
    try:
        return Call(name, arguments, parse_strict(arguments))
    except ValueError as error:
        return Call(name, arguments, broken=str(error) if arguments else "there are none")


def _call_faults(index: int, call: Call, expected: Expected) -> Iterator[Finding]:
    if call.broken is not None:
        yield Finding(BROKEN_JSON, f"{_shown(call.arguments)} ({call.broken})", index)
    functions = [tool.get("function") or {} for tool in expected.tools]
    schema = next((one.get("parameters") or {} for one in functions if one.get("name") == call.name), None)
    if schema is None:
        names = ", ".join(str(one.get("name")) for one in functions) or "none"
        yield Finding(UNKNOWN_TOOL, f"{call.name!r}; the tools are {names}", index)
    elif call.broken is None and expected.check is not None:
        yield from (Finding(SCHEMA_INVALID, text, index) for text in expected.check(call.value, schema))


def _schema_faults(text: str, schema: Mapping[str, Any], check: SchemaCheck | None) -> Iterator[Finding]:
    try:
        value = parse_strict(text)
    except ValueError as error:
        yield Finding(BROKEN_JSON, f"{_shown(text)} ({error})")
        return
    if check is not None:
        yield from (Finding(SCHEMA_INVALID, fault) for fault in check(value, schema))


def _call_difference(index: int, call: Call, now: Call, same_tokens: bool | None) -> Finding | None:
    if call.name != now.name:
        return Finding(ALTERED_NAME, f"{now.name!r} instead of {call.name!r}", index)
    if call.broken is None and now.broken is None and same_value(call.value, now.value):
        return None
    if call.arguments == now.arguments:
        return None  # broken on both sides alike
    name = delta_fault(call.arguments, now.arguments) if same_tokens or now.broken else None
    seen = f"{_shown(now.arguments)} instead of {_shown(call.arguments)}"
    return Finding(name or ALTERED_ARGUMENTS, seen, index)


def _leaks(answer: RequestResult) -> Iterator[Finding]:
    leaked = tool_call_leak(answer.text)
    if leaked is not None:
        yield Finding(TOOL_CALL_LEAK, f"the content holds {leaked!r}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key comes twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _has_copy(reference: str, seen: str, start: int) -> bool:
    """Tell whether what ``seen`` has more is a copy of what stands right before it.

    The texts may agree beyond the place where the copy was put in, so every place up to there is tried.
    """
    size = len(seen) - len(reference)
    return any(
        seen[at - size : at] == seen[at : at + size] and seen[at + size :] == reference[at:]
        for at in range(size, start + 1)
    )


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _EXCERPT else text[:_EXCERPT] + "...")
