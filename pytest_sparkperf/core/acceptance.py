"""How many drafted tokens the model accepted, pooled by counts from metrics, log lines or requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_sparkperf.core.exposition import Scrape, difference
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.serverlog import SpecDecodingInterval

Source = Literal["counters", "log", "requests"]

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

# One run reads 72.7 % by tokens and 66.4 % by requests: figures compare only where this name is equal.
ESTIMATOR = "token-weighted"

ACCEPTANCE_METRICS = ("acceptance_rate", "acceptance_length")

NO_SERIES = "no spec-decode series: /metrics answered with an empty body"
NOT_SPECULATING = "no speculative decoding: /metrics shows no spec_decode counters"
NOT_A_NUMBER = "no acceptance: a spec_decode counter is not a finite number"
NOTHING_DRAFTED = "no acceptance: nothing was drafted"
NOTHING_ACCEPTED = (
    "none of {drafted} drafted tokens was accepted: the draft does not belong to this model, or is broken"
)
NO_SCRAPE_BEFORE = "no acceptance: the first scrape of /metrics is empty, there is nothing to subtract"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts of speculative decoding; the rates are token-weighted and exclude the bonus token.

    ``drafts`` is None where the server does not count them (the V0 engine). The counts per position are
    whole numbers from ``source`` ``"counters"``, and within rounding from ``"log"``, whose lines print rates.
    """

    drafts: int | None
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...] = ()
    source: Source = "counters"

    @property
    def rate(self) -> float | None:
        """Accepted / draft tokens, 0 to 1; None where nothing was drafted."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None

    @property
    def length(self) -> float | None:
        """Tokens per draft with the bonus token, 1 + accepted / drafts; None where nothing was drafted."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts else None

    @property
    def per_position(self) -> tuple[float, ...] | None:
        """Accepted at each position / drafts; None where nothing was drafted or positions are not known."""
        if not self.drafts or not self.accepted_per_position:
            return None
        return tuple(accepted / self.drafts for accepted in self.accepted_per_position)

    @property
    def k(self) -> int | None:
        """Positions per draft; without positions, draft tokens per draft where that is a whole number."""
        if self.accepted_per_position:
            return len(self.accepted_per_position)
        if not self.drafts or self.draft_tokens % self.drafts:
            return None
        return self.draft_tokens // self.drafts

    @property
    def wasted_tokens(self) -> int:
        """Draft tokens that were rejected."""
        return self.draft_tokens - self.accepted_tokens


def acceptance_figures(found: Acceptance | None) -> dict[str, float | None]:
    """Return rate and length by the names of their metrics."""
    return {
        "acceptance_rate": found.rate if found else None,
        "acceptance_length": found.length if found else None,
    }


class _Counters(Protocol):
    def total(self, name: str) -> float | None: ...

    def by_label(self, name: str, label: str) -> dict[str, float]: ...


def acceptance_between(before: Scrape, after: Scrape) -> Acceptance | None:
    """Return what was drafted and accepted between two scrapes, over all engines and model names.

    None where nothing speculates or the counters cannot be subtracted; :func:`why_no_acceptance` says which.
    """
    delta = difference(before, after)
    return None if delta.restarted else _read(delta)


def acceptance_since_start(scrape: Scrape) -> Acceptance | None:
    """Return what was drafted and accepted since the server's start, other people's requests among it."""
    return _read(scrape)


def why_no_acceptance(before: Scrape | None, after: Scrape) -> str | None:
    """Return why there is no rate between two scrapes (without ``before``: since the start), else None."""
    if not after.samples:
        return NO_SERIES
    if after.spelling(DRAFT_TOKENS) is None and after.spelling(DRAFTS) is None:
        return NOT_SPECULATING
    if before is not None and not before.samples:
        return NO_SCRAPE_BEFORE
    reset = None if before is None else difference(before, after).reset
    if reset is not None:
        return f"no acceptance: the server restarted between the two scrapes ({reset})"
    found = acceptance_since_start(after) if before is None else acceptance_between(before, after)
    if found is None:
        return NOT_A_NUMBER
    return NOTHING_DRAFTED if found.rate is None else None


def pool(windows: Sequence[Acceptance | None]) -> Acceptance | None:
    """Pool the counts of several windows; None without any, and where one of them has none.

    Positions are pooled where all windows have as many of them.
    """
    known = [one for one in windows if one is not None]
    if not known or len(known) < len(windows):
        return None
    drafts = [one.drafts for one in known if one.drafts is not None]
    positions = [one.accepted_per_position for one in known]
    alike = len({len(one) for one in positions}) == 1
    return Acceptance(
        drafts=sum(drafts) if len(drafts) == len(known) else None,
        draft_tokens=sum(one.draft_tokens for one in known),
        accepted_tokens=sum(one.accepted_tokens for one in known),
        accepted_per_position=tuple(map(sum, zip(*positions, strict=True))) if alike else (),
        source=known[0].source,
    )


def pool_requests(requests: Iterable[tuple[int, int]]) -> Acceptance:
    """Pool (accepted, draft) tokens of single requests by counts."""
    counts = list(requests)
    return Acceptance(
        drafts=None,
        draft_tokens=sum(drafted for _, drafted in counts),
        accepted_tokens=sum(accepted for accepted, _ in counts),
        source="requests",
    )


def acceptance_of_requests(answers: Sequence[RequestResult]) -> Acceptance | None:
    """Pool what servers with per-request metrics tell; None without answers, and where one is not told of."""
    return pool(
        [
            None
            if one.drafted is None
            else Acceptance(
                one.drafted.drafts,
                one.drafted.draft_tokens,
                one.drafted.accepted_tokens,
                one.drafted.accepted_per_position,
                "requests",
            )
            for one in answers
        ]
    )


def request_weighted_rate(requests: Iterable[tuple[int, int]]) -> float | None:
    """Return the mean of the requests' own rates: another estimator than :data:`ESTIMATOR`."""
    rates = [accepted / drafted for accepted, drafted in requests if drafted]
    return sum(rates) / len(rates) if rates else None


def pool_intervals(intervals: Sequence[SpecDecodingInterval]) -> Acceptance | None:
    """Pool SpecDecoding log lines by counts; None without lines.

    Lines of the V0 engine hold totals since the start, so that the last of them stands for all.
    """
    totals = [interval for interval in intervals if interval.cumulative][-1:]
    pooled = totals or list(intervals)
    if not pooled:
        return None
    drafts = [_drafts(interval) for interval in pooled]
    known = [count for count in drafts if count is not None]
    depth = max(len(interval.per_position) for interval in pooled)
    positions = [0] * depth
    for interval, count in zip(pooled, drafts, strict=True):
        for position, rate in enumerate(interval.per_position):
            positions[position] += round(rate * (count or 0))
    return Acceptance(
        drafts=sum(known) if len(known) == len(drafts) else None,
        draft_tokens=sum(interval.draft_tokens for interval in pooled),
        accepted_tokens=sum(interval.accepted_tokens for interval in pooled),
        accepted_per_position=tuple(positions),
        source="log",
    )


def _drafts(interval: SpecDecodingInterval) -> int | None:
    """Derive the drafts of a line, which prints none.

    They are drafted / k, unless drafts were cut short (at a request's end, under a grammar): the printed
    length, rounded to 0.005, tells. Then they follow from accepted / drafts = length - 1 = the sum of the
    rates by position, of which the sum is the more precise.
    """
    k = len(interval.per_position)
    if interval.draft_tokens == 0:
        return 0
    if interval.length is None:
        return None
    if k and interval.draft_tokens % k == 0:
        whole = interval.draft_tokens // k
        if math.isclose(1 + interval.accepted_tokens / whole, interval.length, abs_tol=0.00501):
            return whole
    per_draft = sum(interval.per_position) if k else interval.length - 1
    return round(interval.accepted_tokens / per_draft) if per_draft > 0 else None


def _read(counters: _Counters) -> Acceptance | None:
    draft_tokens, accepted = counters.total(DRAFT_TOKENS), counters.total(ACCEPTED_TOKENS)
    if draft_tokens is None or accepted is None:
        return None
    drafts = counters.total(DRAFTS)
    return Acceptance(
        drafts=None if drafts is None else int(drafts),
        draft_tokens=int(draft_tokens),
        accepted_tokens=int(accepted),
        accepted_per_position=_positions(counters.by_label(ACCEPTED_PER_POSITION, "position")),
    )


def _positions(accepted: dict[str, float]) -> tuple[int, ...]:
    """Order counts by their position; empty where one is missing, since the rest would shift."""
    names = [str(position) for position in range(len(accepted))]
    return tuple(int(accepted[name]) for name in names) if all(name in accepted for name in names) else ()
