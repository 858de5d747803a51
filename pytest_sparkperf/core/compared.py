"""Turns the answers of all arms to one set of questions into a judged line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pytest_sparkperf.core.cachefacts import CacheFacts
from pytest_sparkperf.core.equivalence import Comparison, Generation, compare, compare_values, with_choices
from pytest_sparkperf.core.question import Question
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.same_output import ENGINE_DEATH, Item, Line, failed_line, judge_line, not_judged
from pytest_sparkperf.core.toolcheck import (
    DOUBLED_DELTA,
    LOST_DELTA,
    Expected,
    Finding,
    SchemaCheck,
    answer_faults,
)
from pytest_sparkperf.core.validity import (
    REJECTED,
    SERVER_FAULTS,
    SEVERAL_CHOICES,
    TOKEN_COUNT_MISMATCH,
)

CONVERSATION = "conversation, warm cache"

CACHE_OFF = "prefix caching is off on {}"
NOT_ASKED = "the server with speculation had died before"
NO_HITS = (
    "no cache hit on {arm} in the conversation, so it was not warm: a block has {block} tokens, and the "
    "prompts must be longer than one; start the servers with a smaller --block-size"
)
NOT_COUNTED = (
    "{arm} counts no prefix cache hits and reports no cached tokens, so nobody knows whether the "
    "conversation was warm; start it with --enable-prompt-tokens-details"
)

Answers = Sequence[Generation | None]

_NO_PROBES: Mapping[int, Generation | None] = MappingProxyType({})
# Answers that say nothing about the text; anything else that makes a sample unfit for timing leaves it whole.
_UNUSABLE = SERVER_FAULTS | {REJECTED, SEVERAL_CHOICES}


@dataclass(frozen=True, slots=True)
class Conversation:
    """One pass of the warm line: the answers, and how many prompt tokens came from the cache."""

    questions: tuple[Question, ...]
    answers: tuple[Generation | None, ...]
    salt: str = ""
    facts: CacheFacts = field(default_factory=CacheFacts)
    hits: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """The answers of all arms to the same questions; None for one that a dead server could not give.

    ``probes`` are what on answered once more, by index; ``launched`` the answers of a second start of off.
    """

    questions: Sequence[Question]
    off: Answers
    off_again: Answers
    on: Answers
    probes: Mapping[int, Generation | None] = field(default_factory=lambda: _NO_PROBES)
    launched: Answers | None = None
    by_value: bool = False


def is_usable(answer: Generation | None) -> bool:
    """Tell whether there is an answer whose text can be compared, fit for timing or not."""
    return answer is not None and answer.result.reason not in _UNUSABLE


def differing(off: Answers, on: Answers, *, by_value: bool) -> tuple[int, ...]:
    """Return the indices where both sides have an answer and the two are not equal."""
    pairs = enumerate(zip(off, on, strict=True))
    usable = [(at, one, other) for at, (one, other) in pairs if is_usable(one) and is_usable(other)]
    return tuple(at for at, one, other in usable if _kind_differs(_compare(one, other, by_value=by_value)))


def compared_line(
    name: str, rows: Compared, check: SchemaCheck | None = None, *, strict: bool = False
) -> Line:
    """Judge one set of answers; what both servers refuse is left out, what off cannot answer is an ERROR."""
    if rows.on and all(answer is None for answer in rows.on):
        return not_judged(name, NOT_ASKED)
    refused = [at for at in range(len(rows.questions)) if _refused(rows.off[at]) and _refused(rows.on[at])]
    if len(refused) == len(rows.questions):
        answer = rows.off[0]
        return not_judged(name, f"both servers refuse it ({answer.result.error if answer else ''})")
    kept = [at for at in range(len(rows.questions)) if at not in refused]
    for at in kept:
        for answer in (rows.off[at], rows.off_again[at]):
            if not is_usable(answer):
                return failed_line(
                    name, "ERROR", f"off did not answer {rows.questions[at].name}{_why(answer)}"
                )
    line = judge_line(name, [_item(rows, at, check) for at in kept], strict=strict)
    words = [line.reason] if line.reason else []
    words += [f"{len(refused)} refused by both servers"] if refused else []
    return replace(line, reason="; ".join(words))


def warm_line(
    talks: tuple[Conversation, Conversation, Conversation],
    probes: Mapping[int, Generation | None],
    launched: Answers | None,
    check: SchemaCheck | None = None,
    *,
    strict: bool = False,
) -> Line:
    """Judge the conversation: off, off again, on; only where cache hits prove that each was warm."""
    off, again, on = talks
    for arm, talk in (("off", off), ("off", again), ("on", on)):
        if talk.facts.enabled is False:
            return not_judged(CONVERSATION, CACHE_OFF.format(arm))
        alive = all(answer is not None for answer in talk.answers)
        if alive and talk.hits is None:
            return failed_line(CONVERSATION, "ERROR", NOT_COUNTED.format(arm=arm))
        if alive and not talk.hits:
            block = talk.facts.block_tokens or "an unknown number of"
            return failed_line(CONVERSATION, "ERROR", NO_HITS.format(arm=arm, block=block))
    rows = Compared(off.questions, off.answers, again.answers, on.answers, probes, launched, by_value=True)
    return compared_line(CONVERSATION, rows, check, strict=strict)


def after_name(name: str) -> str:
    """Return the name of a set's line when it is asked again after the conversation."""
    return f"{name}, after the conversation"


def _item(rows: Compared, at: int, check: SchemaCheck | None) -> Item:
    question = rows.questions[at]
    off, again, on = rows.off[at], rows.off_again[at], rows.on[at]
    probe = rows.probes.get(at)
    assert off is not None
    reference = with_choices(off, again)
    subject = with_choices(on, probe) if is_usable(on) and on is not None else None
    launch = rows.launched[at] if rows.launched is not None else None
    both = [_faults(question, one, check) for one in (off, again)]
    return Item(
        question.name,
        _compare(reference, subject, by_value=rows.by_value),
        control=_compare(reference, again, by_value=rows.by_value),
        launch=_compare(reference, launch, by_value=rows.by_value) if is_usable(launch) else None,
        on_faults=_faults(question, on, check),
        off_faults=max(both, key=len),
        on_stable=None if probe is None or on is None else compare(on, probe).kind == "equal",
    )


def _faults(question: Question, answer: Generation | None, check: SchemaCheck | None) -> tuple[Finding, ...]:
    if answer is None:
        return (Finding(ENGINE_DEATH, "not asked any more"),)
    result = answer.result
    if not is_usable(answer):
        return (Finding(str(result.reason), result.error or ""),)
    expected = Expected(question.tools, question.calls, question.schema, question.pattern, check)
    return (*_stream_faults(result), *answer_faults(result, expected))


def _stream_faults(result: RequestResult) -> tuple[Finding, ...]:
    """Return the finding of a stream whose ids and usage disagree: some came not at all, or twice."""
    if result.reason != TOKEN_COUNT_MISMATCH or result.output_tokens is None:
        return ()
    lost = len(result.token_ids or ()) < result.output_tokens
    return (Finding(LOST_DELTA if lost else DOUBLED_DELTA, result.error or ""),)


def _compare(off: Generation | None, on: Generation | None, *, by_value: bool) -> Comparison | None:
    if off is None or on is None:
        return None
    return (compare_values if by_value else compare)(off, on)


def _kind_differs(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.kind != "equal"


def _refused(answer: Generation | None) -> bool:
    return answer is not None and answer.result.reason == REJECTED


def _why(answer: Generation | None) -> str:
    if answer is None:
        return ": it was dead by then"
    return f" ({answer.result.reason}): {answer.result.error or 'no words'}"
