"""What a user reads in a test body: results, requests and verdicts. Missing is None, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "ERROR"]
TpotRule = Literal["minus_first_event", "n_minus_1"]

_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a server tells of the drafts of one request, where it was started to tell it."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One request as the client saw it.

    Times with the suffix ``_s`` are readings of one monotonic clock; ``None`` means that the event never
    came. ``reason`` names why a sample is not valid (see :mod:`pytest_sparkperf.core.validity`), ``error``
    holds the server's words or the figures behind the reason. Counts come from the server's ``usage`` and are
    never counted from chunks. ``tool_calls`` have the shape of an answer that is not streamed. ``drafted``
    is told by servers with per-request metrics alone.
    """

    valid: bool
    reason: str | None = None
    error: str | None = None
    prompt_name: str = ""
    written_s: float | None = None
    first_event_s: float | None = None
    last_event_s: float | None = None
    first_event_tokens: int | None = None
    token_events: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    itl_ms: tuple[float, ...] = ()
    token_ids: tuple[int, ...] | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    finish_reason: str | None = None
    status: int | None = None
    done_seen: bool = False
    length_limited: bool | None = None
    drafted: Drafted | None = None

    @property
    def ttft_ms(self) -> float | None:
        """Request written to first token event, in ms."""
        return _gap_ms(self.written_s, self.first_event_s)

    @property
    def e2el_ms(self) -> float | None:
        """Request written to last token event (not ``[DONE]``), in ms."""
        return _gap_ms(self.written_s, self.last_event_s)

    @property
    def tpot_rule(self) -> TpotRule:
        """The rule that :attr:`tpot_ms` follows: the exact one where the server counts per event."""
        return "n_minus_1" if self.first_event_tokens is None else "minus_first_event"

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first event, in ms; None below two events or two tokens."""
        return self.tpot_ms_by(self.tpot_rule)

    def tpot_ms_by(self, rule: TpotRule) -> float | None:
        """Time per output token by a given rule, so that both sides of a comparison use the same one.

        None for a sample that is not valid: lumps and short answers would give the fastest figures.
        """
        if not self.valid:
            return None
        decode_ms = _gap_ms(self.first_event_s, self.last_event_s)
        first = 1 if rule == "n_minus_1" else self.first_event_tokens
        if decode_ms is None or self.output_tokens is None or first is None:
            return None
        later = self.output_tokens - first
        return decode_ms / later if later > 0 and decode_ms > 0 else None

    @property
    def events_per_token(self) -> float | None:
        """Token events / output tokens; far below 1 / (k + 1) where something holds tokens back."""
        return self.token_events / self.output_tokens if self.output_tokens else None

    @property
    def decode_tok_s(self) -> float | None:
        """Decode rate of this stream, 1 / TPOT, in tokens per second."""
        return None if self.tpot_ms is None else 1000 / self.tpot_ms

    @property
    def prefill_tok_s(self) -> float | None:
        """Uncached prompt tokens / TTFT, in tokens per second."""
        if self.prompt_tokens is None or not self.ttft_ms:
            return None
        return (self.prompt_tokens - (self.cached_tokens or 0)) / self.ttft_ms * 1000


def _gap_ms(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else (end - start) * 1000


@dataclass(frozen=True, slots=True)
class FlagCount:
    """How many answers have a flag, out of those where it could be told."""

    flagged: int
    known: int

    @property
    def share(self) -> float | None:
        """Flagged / known, 0 to 1; None where it could be told of no answer."""
        return self.flagged / self.known if self.known else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one limit, in the metric's own unit (or as a ratio B/A for comparisons).

    ``low`` and ``high`` are the bounds that PASS and FAIL were decided on; ``mde`` is the value below (for a
    latency: above) which the truth would have FAILed with 90 % probability. ``constants`` says whether the
    spreads it rests on were measured on this machine (``sparkperf calibrate``) or assumed; None where it
    rests on none. ``excused``: nothing was stored to judge by, and the user said that this is all right.
    """

    gate: str
    outcome: Outcome
    estimate: float | None
    low: float | None
    high: float | None
    limit: float | None
    mde: float | None
    reason: str = ""
    rounds: int = 0
    constants: Literal["measured", "assumed"] | None = None
    excused: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """Everything one measurement found; figures are None where they were not measured.

    Of a comparison the figures are those of B, the server under test; ``against`` holds those of A, and
    ``ratio`` is the speed of B over that of A.
    """

    decode_tok_s: float | None = None
    output_tok_s: float | None = None
    decode_throughput_tok_s: float | None = None
    prefill_tok_s: float | None = None
    input_tok_s: float | None = None
    requests_per_s: float | None = None
    goodput_rps: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itl_ms: float | None = None
    e2el_ms: float | None = None
    step_ms: float | None = None
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] | None = None
    drafts: int | None = None
    wasted_tokens: int | None = None
    error_rate: float | None = None
    memory_gib: float | None = None
    requests: tuple[RequestResult, ...] = ()
    invalid: Mapping[str, int] = field(default_factory=lambda: _NO_FACTS)
    flags: Mapping[str, FlagCount] = field(default_factory=lambda: _NO_FACTS)
    rounds: int = 0
    verdicts: tuple[Verdict, ...] = ()
    server: Mapping[str, Any] = field(default_factory=lambda: _NO_FACTS)
    simulated: bool = False
    tpot_rule: TpotRule | None = None
    ratio: float | None = None
    against: Result | None = None
    notes: tuple[str, ...] = ()

    def percentile(self, name: str, q: float) -> float | None:
        """Return the ``q``-th percentile (0 to 100) of a per-request metric over all valid requests.

        Linear interpolation between order statistics. Raises ValueError for a metric that single requests
        do not have, or a ``q`` outside 0 to 100.
        """
        if name not in _PER_REQUEST:
            raise ValueError(f"no per-request metric is called {name!r}; there are {', '.join(_PER_REQUEST)}")
        if not 0 <= q <= 100:
            raise ValueError(f"a percentile lies between 0 and 100, got {q!r}")
        values: list[float] = []
        for request in self.requests:
            if request.valid:
                found = getattr(request, name)
                values += found if isinstance(found, tuple) else [] if found is None else [found]
        if not values:
            return None
        values.sort()
        rank = q / 100 * (len(values) - 1)
        below = math.floor(rank)
        above = min(below + 1, len(values) - 1)
        return values[below] + (values[above] - values[below]) * (rank - below)


_PER_REQUEST = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "decode_tok_s", "prefill_tok_s")
