"""Reads the log-probabilities in the events of a streamed answer, by token position."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.load import Endpoint

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Choice:
    """The token an answer has at one position, as text, and the log-probabilities of the best candidates."""

    token: str
    candidates: Mapping[str, float] = field(default_factory=lambda: _NONE)

    @property
    def logprob(self) -> float | None:
        """The log-probability of the token itself, in nats; None where unknown."""
        return self.candidates.get(self.token)

    @property
    def top2_gap(self) -> float | None:
        """How far the best candidate is above the second, in nats; None where fewer are known."""
        best = sorted(self.candidates.values(), reverse=True)[:2]
        return best[0] - best[1] if len(best) == 2 else None


def read_choices(payloads: Iterable[bytes], endpoint: Endpoint) -> Mapping[int, Choice]:
    """Return the choices that the events of an answer tell of, by position among its output tokens.

    An event whose ids and log-probabilities differ in number tells of none. A server that sends no ids is
    taken to tell of every token. Events that are no JSON objects are passed over.
    """
    choices: dict[int, Choice] = {}
    position = 0
    for payload in payloads:
        first = _first_choice(payload)
        told = _told(first.get("logprobs"), endpoint)
        ids = first.get("token_ids")
        count = len(ids) if isinstance(ids, list) else len(told)
        if count == len(told):
            choices.update(enumerate(told, start=position))
        position += count
    return MappingProxyType(choices)


def _first_choice(payload: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _told(logprobs: object, endpoint: Endpoint) -> list[Choice]:
    if not isinstance(logprobs, dict):
        return []
    if endpoint == "completions":
        tokens, tops = logprobs.get("tokens") or [], logprobs.get("top_logprobs") or []
        pairs = zip(tokens, tops, strict=False)
        return [Choice(str(token), _numbers(top)) for token, top in pairs]
    entries = [entry for entry in logprobs.get("content") or [] if isinstance(entry, dict)]
    return [Choice(str(entry.get("token")), _chat_candidates(entry)) for entry in entries]


def _chat_candidates(entry: Mapping[str, Any]) -> Mapping[str, float]:
    tops = [top for top in entry.get("top_logprobs") or [] if isinstance(top, dict)]
    found = _numbers({str(top.get("token")): top.get("logprob") for top in tops})
    # The token's own value is told apart from the best ones, in case it is not among them.
    return MappingProxyType({**_numbers({str(entry.get("token")): entry.get("logprob")}), **found})


def _numbers(values: object) -> Mapping[str, float]:
    pairs = values.items() if isinstance(values, dict) else ()
    return MappingProxyType(
        {str(key): float(value) for key, value in pairs if isinstance(value, (int, float))}
    )
