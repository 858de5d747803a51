"""Flags of an answer that make its speed easy to misread, and the rule that arms must share them alike.

A flag does not make a request invalid: a model that loops under ``ignore_eos`` loops on every build. But an
arm that loops more often than the other did other work, and a draft predicts loops best.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

from pytest_sparkperf.core.repetition import is_repetitive
from pytest_sparkperf.core.result import FlagCount, RequestResult

DEGENERATE = "degenerate"
PAST_END = "past_end"

FLAG_SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        DEGENERATE: "At least a third of the answer is one block repeated, which drafts predict best.",
        PAST_END: "The model ended its answer before the output length was reached; what follows under"
        " ignore_eos is text it never meant to write.",
    }
)

# How models of the field write the end of a turn or of a text; a tokenizer knows some of them as one token.
END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|return|>",
    "<|end|>",
    "<|user|>",
    "</s>",
    "<eos>",
)

MAX_SHARE_GAP = 0.10


def is_degenerate(answer: RequestResult) -> bool | None:
    """Tell whether an answer repeats itself, by token ids, else by words; None where it has neither."""
    tokens: Sequence[Hashable] = answer.token_ids or f"{answer.reasoning} {answer.text}".split()
    return is_repetitive(tokens) if tokens else None


def is_past_end(answer: RequestResult, end_ids: frozenset[int] | None) -> bool | None:
    """Tell whether an end token stands before the last token; None without token ids or known end tokens."""
    if not end_ids or answer.token_ids is None:
        return None
    return not end_ids.isdisjoint(answer.token_ids[:-1])


def count_flags(
    answers: Iterable[RequestResult], end_ids: frozenset[int] | None = None
) -> dict[str, FlagCount]:
    """Count each flag over the answers of one arm; hand over only those that count."""
    counted = list(answers)
    return {
        DEGENERATE: _count([is_degenerate(answer) for answer in counted]),
        PAST_END: _count([is_past_end(answer, end_ids) for answer in counted]),
    }


def different_work(
    names: tuple[str, str], first: Mapping[str, FlagCount], second: Mapping[str, FlagCount]
) -> str | None:
    """Say that two arms (or a run and its record) did different work; None where their shares agree.

    They do up to 10 points; a flag that could not be told on one side is not compared.
    """
    for flag, count in first.items():
        other = second.get(flag)
        if count.share is None or other is None or other.share is None:
            continue
        # Whole counts divided: 1.1 - 1.0 must not exceed 0.1 by rounding.
        if abs(count.share - other.share) > MAX_SHARE_GAP + 1e-9:
            return (
                f"{flag}: {_told(count)} answers of {names[0]} against {_told(other)} of {names[1]}, more "
                f"than {100 * MAX_SHARE_GAP:.0f} points apart: they did different work, so their speeds "
                f"cannot be compared. {FLAG_SENTENCES[flag]} Compare the texts, or use prompts with longer "
                "answers"
            )
    return None


def flag_words(counts: Mapping[str, FlagCount]) -> str:
    """Return the flags that occurred, as ``degenerate 3/12``; empty where none did."""
    return ", ".join(f"{flag} {_told(count)}" for flag, count in counts.items() if count.flagged)


def _told(count: FlagCount) -> str:
    return f"{count.flagged}/{count.known}"


def _count(told: Sequence[bool | None]) -> FlagCount:
    return FlagCount(sum(flag is True for flag in told), sum(flag is not None for flag in told))
