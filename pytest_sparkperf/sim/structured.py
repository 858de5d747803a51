"""Reads what a request demands of its content's form, and writes a document that has it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pytest_sparkperf.sim.body import Body, RequestError, type_error
from pytest_sparkperf.sim.invent import KEYWORDS, Inventor, unknown_keyword
from pytest_sparkperf.sim.patterns import PatternError, matching_text

# Where no schema is given, any object will do.
_ANY_OBJECT = {"type": "object", "properties": {"answer": {"type": "string"}}}
_LEGACY = ("json", "regex", "choice", "json_object", "grammar", "structural_tag")


def demands_form(body: Body) -> bool:
    """Tell whether a request wants its content in a form of its own."""
    return bool(_demands(body))


def document(body: Body, digest: bytes) -> str | None:
    """Return content in the form that a request demands; None where it demands none."""
    demands = _demands(body)
    if not demands:
        return None
    if len(demands) > 1:
        raise RequestError(
            "You can only use one kind of structured outputs constraint but multiple are specified: "
            f"{', '.join(demands)}."
        )
    ((kind, value),) = demands.items()
    inventor = Inventor(digest, "document")
    if kind == "regex":
        return _from_pattern(value, inventor)
    if kind == "choice" and isinstance(value, list) and value:
        return str(value[inventor.number() % len(value)])
    if kind == "json_object":
        return json.dumps(inventor.value(_ANY_OBJECT), ensure_ascii=False)
    if kind == "json":
        return _from_schema(value, inventor)
    raise RequestError(
        f"The simulator does not support structured outputs by {kind}={value!r:.80}. Use a JSON schema, a "
        "regular expression or a choice.",
        param="structured_outputs",
    )


def _from_schema(schema: object, inventor: Inventor) -> str:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except json.JSONDecodeError as error:
            raise RequestError(f"The JSON schema is no JSON: {error}.", param="response_format") from None
    unknown = unknown_keyword(schema)
    if unknown is not None:
        raise RequestError(
            f"The simulator does not support {unknown} in a JSON schema. It knows {', '.join(KEYWORDS)}.",
            param="response_format",
        )
    try:
        return json.dumps(inventor.value(schema), ensure_ascii=False)
    except PatternError as error:
        raise _pattern_refused(error) from None


def _from_pattern(pattern: object, inventor: Inventor) -> str:
    if not isinstance(pattern, str):
        raise type_error("structured_outputs.regex", "a valid string", pattern, kind="string_type")
    try:
        return matching_text(pattern, inventor.number)
    except PatternError as error:
        raise _pattern_refused(error) from None


def _pattern_refused(error: PatternError) -> RequestError:
    return RequestError(
        f"The simulator cannot write a text for this regular expression: {error}. It knows literals, "
        "escapes, classes, groups, alternatives and quantifiers.",
        param="structured_outputs",
    )


def _demands(body: Body) -> dict[str, object]:
    """Return the constraints by kind, wherever in a request they may stand."""
    demands: dict[str, object] = {}
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if isinstance(wanted, Mapping) and kind == "json_schema":
        named = wanted.get("json_schema")
        demands["json"] = named.get("schema") if isinstance(named, Mapping) else None
    elif kind == "json_object":
        demands["json_object"] = True
    elif wanted is not None and kind != "text":
        wanted_text = "an object of type text, json_object or json_schema"
        raise type_error("response_format", wanted_text, wanted, kind="literal_error")
    outputs = body.get("structured_outputs")
    if isinstance(outputs, Mapping):
        demands |= {str(key): value for key, value in outputs.items() if value not in (None, False)}
    for name in _LEGACY:
        if body.get(f"guided_{name}") not in (None, False):
            demands[name] = body[f"guided_{name}"]
    return demands
