"""Compares two answers to one request token by token and says how their first difference is to be read.

Greedy speculative decoding is lossless up to the rounding of the hardware: verifying k + 1 tokens at once
multiplies other shapes than decoding one, and where two candidates are all but equal the other one may win.
After the first difference the texts go their own ways, so nothing behind it is compared.

A difference is a near-tie when, at that position, both answers had both tokens among their candidates, the
two tokens were at most NEAR_TIE_NATS apart in each answer, and each token's log-probability moved by at most
as much between the answers. What is not known is never a near-tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from pytest_sparkperf.core.logprobs import Choice
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.toolcheck import compare_calls, delta_fault, parse_strict, same_value

Kind = Literal["equal", "near_tie", "launch", "divergent"]
Channel = Literal["tokens", "reasoning", "content", "tool_calls"]
Unit = Literal["token", "character", "call"]

# Two steps of bfloat16 for logits between 16 and 32, where the best ones of most models lie. Prefix caching
# alone moved a tie by one such step, 0.125 (vllm issue 40896); MTP tied within 0.002 (vllm issue 42518).
NEAR_TIE_NATS = 0.25

# So many characters that are equal again behind a gap are no accident.
_RESYNC = 16

_NO_CHOICES: Mapping[int, Choice] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Generation:
    """One answer as it is compared; ``choices`` are known at some or all token positions.

    ``retokenized`` says that the token ids were made of the text, by the server's tokenizer.
    """

    result: RequestResult
    choices: Mapping[int, Choice] = field(default_factory=lambda: _NO_CHOICES)
    retokenized: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two answers part: the tokens there, and how far apart each answer saw the two (nats).

    A token is None where that answer ended or is not known; ``names`` are findings of
    :mod:`~pytest_sparkperf.core.toolcheck`.
    """

    channel: Channel
    position: int
    unit: Unit
    first: Choice | None = None
    second: Choice | None = None
    first_gap: float | None = None
    second_gap: float | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one answer compares with another; ``agreed`` counts the tokens (else characters) in common."""

    kind: Kind
    agreed: int
    difference: Difference | None = None


def compare(
    first: Generation, second: Generation, *, limit: int | None = None, bound: float = NEAR_TIE_NATS
) -> Comparison:
    """Compare two answers, at most their first ``limit`` tokens.

    Token ids decide where both answers have them: equal ids with other text mean that the stream or a parser
    lost or doubled something, which is always divergent. Without ids the channels are compared as text, tool
    calls by value.
    """
    one, other = first.result.token_ids, second.result.token_ids
    if one is None or other is None or first.retokenized != second.retokenized:
        return _compare_texts(first.result, second.result, same_tokens=None)
    at = _first_difference(one[:limit], other[:limit])
    if at is not None:
        return _at_token(first, second, at, bound)
    if limit is not None and limit < max(len(one), len(other)):
        return Comparison("equal", min(limit, len(one)))  # the texts go on behind the limit
    found = _compare_texts(first.result, second.result, same_tokens=True)
    return replace(found, agreed=len(one))


def with_choices(answer: Generation, again: Generation | None) -> Generation:
    """Return an answer with the choices of its repetition, as far as both have the same tokens.

    Log-probabilities are not asked for with the answer that counts, since a server may take another path
    where they are wanted.
    """
    if again is None or not again.choices:
        return answer
    found = compare(answer, again)
    end = None if found.kind == "equal" else found.agreed
    same = {at: choice for at, choice in again.choices.items() if end is None or at < end}
    return replace(answer, choices=MappingProxyType(same))


def compare_values(first: Generation, second: Generation, *, bound: float = NEAR_TIE_NATS) -> Comparison:
    """Compare two answers that call tools or are JSON: equal where they say the same, however written.

    What was thought before a call does not count. Where calls or values differ, the first difference among
    the tokens says how that is to be read.
    """
    same_tokens = _same_tokens(first.result, second.result)
    findings = compare_calls(first.result, second.result, same_tokens=same_tokens)
    found = compare(first, second, bound=bound)
    if not findings:
        calls = bool(first.result.tool_calls)
        same = calls or _same_json(first.result.text, second.result.text)
        return Comparison("equal", found.agreed) if same else found
    names = tuple(str(finding) for finding in findings)
    at = next(
        (finding.call for finding in findings if finding.call is not None), len(first.result.tool_calls)
    )
    difference = found.difference or Difference("tool_calls", at, "call")
    kind: Kind = "divergent" if found.kind == "equal" else found.kind
    return Comparison(kind, found.agreed, replace(difference, names=names))


def candidate_gap(choice: Choice | None, one: str, other: str) -> float | None:
    """Return how far apart an answer saw two tokens, in nats; None where it does not tell."""
    if choice is None or one == other or not {one, other} <= choice.candidates.keys():
        return None
    return abs(choice.candidates[one] - choice.candidates[other])


def is_near_tie(first: Choice | None, second: Choice | None, bound: float = NEAR_TIE_NATS) -> bool:
    """Apply the rule at the head of this module to what two answers had at one position."""
    if first is None or second is None or first.token == second.token:
        return False
    tokens = (first.token, second.token)
    gaps = [candidate_gap(choice, *tokens) for choice in (first, second)]
    if any(gap is None or gap > bound for gap in gaps):
        return False
    moves = (abs(first.candidates[token] - second.candidates[token]) for token in tokens)
    return max(moves) <= bound


def _at_token(first: Generation, second: Generation, at: int, bound: float) -> Comparison:
    one, other = first.choices.get(at), second.choices.get(at)
    tokens = None if one is None or other is None else (one.token, other.token)
    difference = Difference(
        "tokens",
        at,
        "token",
        one,
        other,
        first_gap=tokens and candidate_gap(one, *tokens),
        second_gap=tokens and candidate_gap(other, *tokens),
        names=_text_names(first, second) if first.retokenized else (),
    )
    return Comparison("near_tie" if is_near_tie(one, other, bound) else "divergent", at, difference)


def _compare_texts(first: RequestResult, second: RequestResult, *, same_tokens: bool | None) -> Comparison:
    agreed = 0
    channels: tuple[tuple[Channel, str, str], ...] = (
        ("reasoning", first.reasoning, second.reasoning),
        ("content", first.text, second.text),
    )
    for channel, one, other in channels:
        at = _first_difference(one, other)
        if at is not None:
            # Texts of other tokens do not come together again by themselves.
            resynced = at + _RESYNC <= min(len(one), len(other))
            fault = delta_fault(one, other) if same_tokens or resynced else None
            difference = Difference(channel, at, "character", names=(fault,) if fault else ())
            return Comparison("divergent", agreed + at, difference)
        agreed += len(one)
    findings = compare_calls(first, second, same_tokens=same_tokens)
    if findings:
        at = next((one.call for one in findings if one.call is not None), len(first.tool_calls))
        names = tuple(str(finding) for finding in findings)
        return Comparison("divergent", agreed, Difference("tool_calls", at, "call", names=names))
    return Comparison("equal", agreed)


def _same_json(one: str, other: str) -> bool:
    try:
        return same_value(parse_strict(one), parse_strict(other))
    except ValueError:
        return False


def _text_names(first: Generation, second: Generation) -> tuple[str, ...]:
    found = _compare_texts(first.result, second.result, same_tokens=None).difference
    return found.names if found else ()


def _same_tokens(first: RequestResult, second: RequestResult) -> bool | None:
    if first.token_ids is None or second.token_ids is None:
        return None
    return first.token_ids == second.token_ids


def _first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """Return where two sequences part; where one is the other's beginning, its end; None for equal ones."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))
