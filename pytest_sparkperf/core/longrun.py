"""A run of many requests as one measurement: ramp and drain cut, the steady part split into segments.

A segment is a round. All segments hold equally many requests, those that ended in it. Rates are not counted
by ends, which come in lumps where streams move in step: each request's tokens are spread over the time in
which they came, and what lies within the segment counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_sparkperf.core.burst import burst_figures
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.result import RequestResult, TpotRule
from pytest_sparkperf.core.slo import share_met

LEAST_SEGMENTS, MOST_SEGMENTS = 3, 12
# Requests of a segment, and in a closed loop no fewer than are under way: as many end at the same time.
_LEAST_REQUESTS = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of the steady part, with the requests that ended in it."""

    begin_s: float
    end_s: float
    requests: tuple[RequestResult, ...]


def requests_needed(load: Load) -> int:
    """Return how many requests a run must have for as many segments as a verdict needs."""
    return _cut(load) + LEAST_SEGMENTS * _segment_size(load)


def steady_requests(load: Load) -> int:
    """Return how many requests of a run lie between ramp and drain."""
    return max(0, (load.requests or 0) - _cut(load))


def segment_count(load: Load, steady: int) -> int:
    """Return into how many segments so many steady requests are split."""
    return min(MOST_SEGMENTS, steady // _segment_size(load))


def segments_of(load: Load, valid: Sequence[RequestResult]) -> tuple[Segment, ...]:
    """Split the steady part of a run; none where it is too short for the segments that a verdict needs.

    It begins when the first wave has ended (in an open loop, the first request), and ends when the last
    request is sent.
    """
    ended = sorted((one for one in valid if one.last_event_s is not None), key=_end_s)
    if not ended:
        return ()
    ramp = 1 if load.request_rate is not None else load.concurrency
    last_sent_s = max(one.written_s for one in ended if one.written_s is not None)
    steady = [one for one in ended[ramp:] if _end_s(one) <= last_sent_s]
    count = segment_count(load, len(steady))
    if count < LEAST_SEGMENTS:
        return ()
    size = len(steady) // count
    begin_s = _end_s(ended[ramp - 1])
    found = []
    for start in range(0, count * size, size):
        members = steady[start : start + size]
        found.append(Segment(begin_s, _end_s(members[-1]), tuple(members)))
        begin_s = found[-1].end_s
    return tuple(found)


def segment_figures(
    segment: Segment, valid: Sequence[RequestResult], rule: TpotRule, slo: Mapping[str, float]
) -> Mapping[str, float | None]:
    """Return every metric of a segment by name; ``valid`` are all requests of the run."""
    seconds = segment.end_s - segment.begin_s
    figures = dict(burst_figures(segment.requests, rule))
    rates = dict.fromkeys(("output_tok_s", "decode_throughput_tok_s", "input_tok_s", "requests_per_s"))
    if seconds <= 0:
        return figures | rates
    output = sum(_within(segment, _output_spans(one)) for one in valid) / seconds
    requests = sum(_within(segment, _whole_span(one)) for one in valid) / seconds
    figures |= {"output_tok_s": output, "decode_throughput_tok_s": output, "requests_per_s": requests}
    figures["input_tok_s"] = sum(_within(segment, _input_span(one)) for one in valid) / seconds
    share = share_met(segment.requests, rule, slo)
    figures["goodput_rps"] = None if share is None else share * requests
    return figures


# ---------------------------------------------------------------------- amounts over time
@dataclass(frozen=True, slots=True)
class _Span:
    """An amount that came evenly between two times, or at once."""

    begin_s: float
    end_s: float
    amount: float


def _output_spans(request: RequestResult) -> Iterator[_Span]:
    begin_s, end_s, tokens = request.first_event_s, request.last_event_s, request.output_tokens
    if begin_s is None or end_s is None or tokens is None:
        return
    first = request.first_event_tokens or 1
    yield _Span(begin_s, begin_s, first)
    yield _Span(begin_s, end_s, tokens - first)


def _input_span(request: RequestResult) -> Iterator[_Span]:
    if request.written_s is not None and request.first_event_s is not None and request.prompt_tokens:
        yield _Span(request.written_s, request.first_event_s, request.prompt_tokens)


def _whole_span(request: RequestResult) -> Iterator[_Span]:
    if request.written_s is not None and request.last_event_s is not None:
        yield _Span(request.written_s, request.last_event_s, 1)


def _within(segment: Segment, spans: Iterator[_Span]) -> float:
    total = 0.0
    for span in spans:
        if span.end_s <= span.begin_s:
            total += span.amount if segment.begin_s < span.begin_s <= segment.end_s else 0
            continue
        overlap_s = min(segment.end_s, span.end_s) - max(segment.begin_s, span.begin_s)
        total += span.amount * max(0.0, overlap_s) / (span.end_s - span.begin_s)
    return total


def _end_s(request: RequestResult) -> float:
    assert request.last_event_s is not None
    return request.last_event_s


def _segment_size(load: Load) -> int:
    return _LEAST_REQUESTS if load.request_rate is not None else max(_LEAST_REQUESTS, load.concurrency)


def _cut(load: Load) -> int:
    """Return how many requests are ramp and drain; in an open loop nobody knows before how many will be."""
    return 1 if load.request_rate is not None else 2 * load.concurrency
