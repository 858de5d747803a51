"""Which tools a simulated model calls: those that a request forces, or that fit what the user says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pytest_sparkperf.sim.answer import ToolCall
from pytest_sparkperf.sim.body import Body, RequestError, type_error
from pytest_sparkperf.sim.invent import altered, invent_arguments
from pytest_sparkperf.sim.prompt import last_user_text, tool_functions

_Function = Mapping[str, object]
# A user who says so wants several calls.
_SEVERAL = "once for each"
_SEVERAL_CALLS = 3
# Shorter words are in every sentence.
_WORD = re.compile(r"[a-z]{4,}")


def tool_calls(body: Body, digest: bytes, *, automatic: bool, altered_argument: bool) -> tuple[ToolCall, ...]:
    """Return the calls of an answer; none where the model answers in text.

    ``automatic`` lets the model choose where the request does: it calls the function whose words are most
    among the user's, if any is.
    """
    choice = body.get("tool_choice", "auto")
    if choice in ("auto", None):
        functions = _fitting(body) if automatic else []
    elif choice == "none":
        functions = []
    else:
        functions = _forced(body, choice)
    calls = [_call(function, digest, index) for index, function in enumerate(functions)]
    if altered_argument:
        calls = [ToolCall(call.name, altered(call.arguments)) for call in calls]
    return tuple(calls)


def _forced(body: Body, choice: object) -> Sequence[_Function]:
    functions = tool_functions(body)
    if isinstance(choice, dict):
        wanted = choice.get("function")
        name = wanted.get("name") if isinstance(wanted, dict) else None
        functions = [function for function in functions if function.get("name") == name]
    elif choice != "required":
        valid = "'none', 'auto', 'required' or a named function"
        raise type_error("tool_choice", valid, choice, kind="literal_error")
    if not functions:
        raise RequestError("When using `tool_choice`, `tools` must be set and hold the named function.")
    return functions[:1]


def _fitting(body: Body) -> Sequence[_Function]:
    said = last_user_text(body)
    functions = tool_functions(body)
    if not said or not functions:
        return []
    words = set(_WORD.findall(said.lower()))
    best = max(functions, key=lambda function: len(words & _words_of(function)))
    if not words & _words_of(best):
        return []
    return [best] * (_SEVERAL_CALLS if _SEVERAL in said else 1)


def _words_of(function: _Function) -> set[str]:
    return set(_WORD.findall(json.dumps([function.get("name"), function.get("description")]).lower()))


def _call(function: _Function, digest: bytes, index: int) -> ToolCall:
    schema = function.get("parameters")
    arguments = invent_arguments(digest, schema if isinstance(schema, Mapping) else {}, index)
    return ToolCall(str(function.get("name")), arguments)
