"""Log-probabilities of simulated tokens in vLLM's shapes: a function of the answer, as its text is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pytest_sparkperf.sim.answer import Answer
from pytest_sparkperf.sim.words import uniform

# A sure model gives its token at least this lead (nats), more by a draw.
_LEAD = 1.5
_LEAD_SPREAD = 5.0
_STEP = 0.4  # from each further candidate to the next
_TIE = (-0.7, -0.705)
_Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that may come next, and its log-probability in nats."""

    token: str
    logprob: float


def candidates(answer: Answer, position: int, count: int) -> tuple[Candidate, ...]:
    """Return the token at a position and the ``count`` - 1 next likely ones, best first; at least itself."""
    tokens = [answer.piece(position).token, *islice(answer.rivals(position), max(0, count - 1))]
    best = -0.002 - 0.25 * uniform(answer.digest, "logprob", position)
    second = best - _LEAD - _LEAD_SPREAD * uniform(answer.digest, "lead", position)
    if answer.is_tie(position):
        best, second = _TIE
    values = [best, *(second - _STEP * rank for rank in range(len(tokens) - 1))]
    return tuple(Candidate(*pair) for pair in zip(tokens, values, strict=True))


def chat_logprobs(answer: Answer, positions: Sequence[int], count: int) -> _Json:
    """Return ``choices[].logprobs`` of a chat answer for some tokens, with ``count`` candidates each."""
    return {"content": [_chat_entry(candidates(answer, position, count), count) for position in positions]}


def completion_logprobs(answer: Answer, positions: Sequence[int], count: int, offset: int) -> _Json:
    """Return ``choices[].logprobs`` of a completion; ``offset`` is where the first token's text begins."""
    told = [candidates(answer, position, count) for position in positions]
    offsets = []
    for position in positions:
        offsets.append(offset)
        offset += len(answer.piece(position).text)
    return {
        "text_offset": offsets,
        "token_logprobs": [each[0].logprob for each in told],
        "tokens": [each[0].token for each in told],
        "top_logprobs": [{one.token: one.logprob for one in each} for each in told],
    }


def _chat_entry(found: Sequence[Candidate], count: int) -> _Json:
    return _entry(found[0]) | {"top_logprobs": [_entry(one) for one in found[:count]]}


def _entry(candidate: Candidate) -> _Json:
    spelled = list(candidate.token.encode())
    return {"token": candidate.token, "logprob": candidate.logprob, "bytes": spelled}
