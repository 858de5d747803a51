"""Reads one event of a streamed answer: the chunk formats of /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_sparkperf.core.load import Endpoint
from pytest_sparkperf.core.result import Drafted
from pytest_sparkperf.core.toolcalls import has_substance

_BODY_EXCERPT = 300


@dataclass(frozen=True, slots=True)
class Usage:
    """Running totals of the server; None where it does not say."""

    output_tokens: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one event says. ``choice_indices`` are the choices it speaks of; texts are those of the first."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    token_ids: tuple[int, ...] | None = None
    usage: Usage | None = None
    choice_indices: tuple[int, ...] = ()
    error: str | None = None
    drafted: Drafted | None = None

    @property
    def is_token_event(self) -> bool:
        """Tell whether anything the model wrote came with this event; a role alone is not."""
        return bool(self.content or self.reasoning or self.tool_calls)


def parse_chunk(payload: bytes, endpoint: Endpoint) -> Chunk:
    """Read the payload of one event; a field of another type than the API's counts as absent.

    Raises ValueError for a payload that is no JSON object in UTF-8.
    """
    document = _parse_object(payload)
    error = error_text(document)
    if error is not None:
        return Chunk(error=error)
    choices = document.get("choices")
    choices = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    usage, drafted = _read_usage(document.get("usage")), _read_drafted(document.get("metrics"))
    if not choices:
        return Chunk(usage=usage, drafted=drafted)
    first = choices[0]
    delta = _read_delta(first) if endpoint == "chat" else Chunk(content=_text(first.get("text")))
    return replace(
        delta,
        finish_reason=_text(first.get("finish_reason")) or None,
        token_ids=_read_token_ids(first.get("token_ids")),
        usage=usage,
        drafted=drafted,
        choice_indices=tuple(_count(one.get("index")) or 0 for one in choices),
    )


def error_text(document: Mapping[str, Any]) -> str | None:
    """Return the message and code of an error object in either of vLLM's forms, None for anything else.

    Current servers send ``{"error": {"message", "code"}}``, older ones ``{"object": "error", "message"}``.
    """
    error = document.get("error") or (document if document.get("object") == "error" else None)
    if not isinstance(error, dict):
        return None if not error else str(error)
    message = _text(error.get("message")) or json.dumps(error)
    code = error.get("code") or error.get("type")
    return f"{message} (code {code})" if code else message


def body_text(body: bytes) -> str:
    """Return the server's words in the body of an HTTP error: its error object, else the text's beginning."""
    try:
        document = _parse_object(body)
    except ValueError:
        return body.decode(errors="replace").strip()[:_BODY_EXCERPT]
    return error_text(document) or _text(document.get("detail")) or json.dumps(document)[:_BODY_EXCERPT]


def _parse_object(payload: bytes) -> dict[str, Any]:
    try:
        document = json.loads(payload.decode())
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("JSON, but no object")  # noqa: TRY004 - to the caller all of these are one fault
    return document


def _read_delta(choice: Mapping[str, Any]) -> Chunk:
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    calls = delta.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    return Chunk(
        content=_text(delta.get("content")),
        # Two names of one channel: some servers fill both with the same text.
        reasoning=_text(delta.get("reasoning")) or _text(delta.get("reasoning_content")),
        tool_calls=tuple(call for call in calls if isinstance(call, dict) and has_substance(call)),
    )


def _read_usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    output_tokens = _count(value.get("completion_tokens"))
    if output_tokens is None:
        return None
    details = value.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(output_tokens, _count(value.get("prompt_tokens")), cached)


def _read_drafted(value: object) -> Drafted | None:
    """Read what servers started with --per-request-spec-decode-metrics tell of one request."""
    told = value.get("speculative_decoding") if isinstance(value, dict) else None
    if not isinstance(told, dict):
        return None
    names = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
    steps, drafted, accepted = (_count(told.get(name)) for name in names)
    if steps is None or drafted is None or accepted is None:
        return None
    # How many steps accepted 0, 1, 2, ... of their tokens.
    histogram = _read_token_ids(told.get("acceptance_histogram")) or ()
    positions = tuple(sum(histogram[at:]) for at in range(1, len(histogram)))
    return Drafted(steps, drafted, accepted, positions)


def _read_token_ids(value: object) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) and all(isinstance(one, int) for one in value) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
