"""Why a request does not count: the reasons, which side they speak of, and the checks on a whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pytest_sparkperf.core.result import RequestResult

# Faults of the server: they count in the error rate at the first attempt.
HTTP_ERROR = "http_error"
ERROR_OBJECT = "error_object"
ABORTED = "aborted"
TRUNCATED = "truncated"
TIMEOUT = "timeout"
CONNECT_FAILED = "connect_failed"
CONNECTION_LOST = "connection_lost"
BAD_JSON = "bad_json"
GARBAGE = "garbage"
# Faults of the measurement: retried once, then the gate is an ERROR.
REJECTED = "rejected"
NO_TOKENS = "no_tokens"
NO_USAGE = "no_usage"
TOKEN_COUNT_MISMATCH = "token_count_mismatch"  # noqa: S105 - tokens of text
STOPPED_EARLY = "stopped_early"
BUFFERED = "buffered"
SEVERAL_CHOICES = "several_choices"
IMPOSSIBLE_RATE = "impossible_rate"

_SERVER_SENTENCES = {
    HTTP_ERROR: "The server answered with an HTTP error of its own (5xx or 429).",
    ERROR_OBJECT: "The server sent an error in the middle of the stream; its log says why.",
    ABORTED: "The server gave the request up before it was finished.",
    TRUNCATED: "The stream ended without [DONE] and without both a finish reason and usage.",
    TIMEOUT: "The server stopped sending and the watchdog ended the request.",
    CONNECT_FAILED: "No connection to the server came about; check that it is up and that the URL is right.",
    CONNECTION_LOST: "The connection broke before the answer was complete.",
    BAD_JSON: "An event of the stream was no JSON object.",
    GARBAGE: "What answered sent no event stream; check that the URL leads to vLLM.",
}
_MEASUREMENT_SENTENCES = {
    REJECTED: "The server refused the request as asked; check the model's name and the lengths.",
    NO_TOKENS: "The answer was complete but held no text, reasoning or tool call that could be timed.",
    NO_USAGE: "The server reported no usage, and tokens are never counted from chunks; something between"
    " client and server may remove stream_options.",
    TOKEN_COUNT_MISMATCH: "usage and token_ids disagree about the number of output tokens.",
    STOPPED_EARLY: "The answer is shorter than asked for, so less was measured; check that ignore_eos reaches"
    " the server.",
    BUFFERED: "Tokens arrived in lumps, so stream times say nothing; look for a buffering proxy"
    " (proxy_buffering off), a parser that holds tokens back, or an overloaded client.",
    SEVERAL_CHOICES: "The answer held several choices; ask for n=1, since streams of one request share their"
    " times.",
    IMPOSSIBLE_RATE: "The rate is above what the memory's bandwidth allows, so tokens were counted or timed"
    " wrongly; look for a parser or proxy that sends them in lumps, or for hardware figures that are not this"
    " machine's.",
}

SENTENCES: Mapping[str, str] = MappingProxyType(_SERVER_SENTENCES | _MEASUREMENT_SENTENCES)
SERVER_FAULTS = frozenset(_SERVER_SENTENCES)
MEASUREMENT_FAULTS = frozenset(_MEASUREMENT_SENTENCES)

# A sound stream brings at most k + 1 tokens per event; servers merge some under load, hence the slack.
_LUMP_SLACK = 4
# Assumed where the number of draft tokens is not known.
_UNKNOWN_K = 3
# Fewer events than these may well share one read.
_SEVERAL_EVENTS = 4
# How far a prompt may be off the length it is labelled with.
_PROMPT_TOLERANCE = 0.03


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason of this module, and the server's words or the figures behind it."""

    reason: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """What was asked for, as far as an answer can be held against it; None where it was left open.

    ``tokens`` must be reached (``ignore_eos``), ``max_tokens`` may be; ``k`` is the number of draft tokens.
    """

    tokens: int | None = None
    max_tokens: int | None = None
    k: int | None = None


def find_fault(answer: RequestResult, expectation: Expectation) -> Fault | None:
    """Return the first thing that makes a complete answer unfit to be measured, None for a sound one."""
    if answer.token_events == 0:
        return Fault(NO_TOKENS)
    if answer.output_tokens is None:
        return Fault(NO_USAGE)
    ids = answer.token_ids
    if ids is not None and len(ids) != answer.output_tokens:
        return Fault(TOKEN_COUNT_MISMATCH, f"usage says {answer.output_tokens} tokens, token_ids {len(ids)}")
    if expectation.tokens is not None and answer.output_tokens < expectation.tokens:
        return Fault(STOPPED_EARLY, f"{answer.output_tokens} of {expectation.tokens} tokens")
    return _find_lumps(answer, answer.output_tokens, expectation.k)


def _find_lumps(answer: RequestResult, output_tokens: int, k: int | None) -> Fault | None:
    instants = 1 + sum(gap_ms > 0 for gap_ms in answer.itl_ms)
    at_once = instants == 1 and answer.token_events >= _SEVERAL_EVENTS
    # Parsers of tool calls hold text back by design, until they know what it is.
    limit = _LUMP_SLACK * ((_UNKNOWN_K if k is None else k) + 1)
    if at_once or (output_tokens > limit * instants and not answer.tool_calls):
        return Fault(BUFFERED, f"{output_tokens} tokens came at {instants} instants")
    return None


def is_length_limited(answer: RequestResult, max_tokens: int | None) -> bool | None:
    """Tell whether the length limit ended an answer; None where neither limit nor finish reason is known.

    The count decides where it can: a tool call that was cut off may be reported as finished.
    """
    if max_tokens is not None and answer.output_tokens is not None:
        return answer.output_tokens >= max_tokens
    return None if answer.finish_reason is None else answer.finish_reason == "length"


def prompt_length_warning(prompt_tokens: int | None, target: int | None) -> str | None:
    """Return what to tell about a prompt that is more than 3 % off the length it is labelled with."""
    if prompt_tokens is None or not target:
        return None
    deviation = prompt_tokens / target - 1
    if abs(deviation) <= _PROMPT_TOLERANCE:
        return None
    return (
        f"the prompt has {prompt_tokens} tokens by the server's count, {deviation:+.1%} off the {target} it"
        " is labelled with; rates use the server's count, so name the workload after that"
    )
