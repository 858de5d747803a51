"""Runs of many requests: what is cut, how segments are made, and that their rates are those of the server."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.longrun import (
    requests_needed,
    segment_figures,
    segments_of,
    steady_requests,
)
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.slo import share_met

TOKENS = 100


def request(begin_s: float, seconds: float, ttft_s: float = 0.0) -> RequestResult:
    return RequestResult(
        valid=True,
        written_s=begin_s,
        first_event_s=begin_s + ttft_s,
        last_event_s=begin_s + seconds,
        first_event_tokens=1,
        token_events=TOKENS,
        prompt_tokens=50,
        output_tokens=TOKENS,
    )


def closed_loop(workers: int, each: int, seconds: float = 1.0, stagger_s: float = 0.0) -> list[RequestResult]:
    """Return the requests of workers that send the next when the last has ended."""
    return [
        request(worker * stagger_s + number * seconds, seconds, 0.1)
        for worker in range(workers)
        for number in range(each)
    ]


@pytest.mark.parametrize("stagger_s", [0.0, 0.07])
def test_the_rates_of_a_steady_closed_loop_are_exact_in_every_segment(stagger_s: float) -> None:
    load = Load(concurrency=4, requests=400)
    run = closed_loop(4, 100, stagger_s=stagger_s)

    segments = segments_of(load, run)

    assert len(segments) == 12
    assert {len(segment.requests) for segment in segments} == {32}
    for segment in segments:
        figures = segment_figures(segment, run, "minus_first_event", {})
        # Four workers, one request a second each.
        assert figures["requests_per_s"] == pytest.approx(4.0, rel=0.01)
        assert figures["output_tok_s"] == pytest.approx(4 * TOKENS, rel=0.02)
        assert figures["input_tok_s"] == pytest.approx(4 * 50, rel=0.02)
        assert figures["ttft_ms"] == pytest.approx(100)
        assert figures["decode_tok_s"] == pytest.approx(99 / 0.9)


def test_ramp_and_drain_are_cut() -> None:
    load = Load(concurrency=4, requests=400)
    run = closed_loop(4, 100, stagger_s=0.07)

    segments = segments_of(load, run)

    assert segments[0].begin_s == pytest.approx(1.21)  # the end of the first wave's last request
    assert segments[-1].end_s <= 99.21  # the last request is sent then
    assert all(a.end_s == b.begin_s for a, b in pairwise(segments))


def test_an_open_loop_is_cut_at_its_first_end_and_its_last_sending() -> None:
    load = Load(request_rate=2.0, requests=100, concurrency=64)
    run = [request(number * 0.5, 1.3) for number in range(100)]

    segments = segments_of(load, run)

    assert segments[0].begin_s == pytest.approx(1.3)
    assert segments[-1].end_s <= 49.5
    assert len(segments) == 12
    for segment in segments:
        figures = segment_figures(segment, run, "minus_first_event", {})
        assert figures["requests_per_s"] == pytest.approx(2.0, rel=0.05)


def test_a_run_that_is_too_short_has_no_segments() -> None:
    load = Load(concurrency=4, requests=20)

    assert requests_needed(load) == 8 + 3 * 4
    assert segments_of(load, closed_loop(4, 4)) == ()
    assert segments_of(load, []) == ()
    assert len(segments_of(load, closed_loop(4, 5, stagger_s=0.07))) == 3


def test_the_steady_part_is_known_before() -> None:
    assert steady_requests(Load(concurrency=32, requests=1000)) == 936
    assert requests_needed(Load(concurrency=256, requests=1)) == 5 * 256
    assert requests_needed(Load(request_rate=2.0, requests=1, concurrency=9)) == 13


def test_goodput_counts_requests_that_meet_every_limit() -> None:
    load = Load(concurrency=2, requests=100, slo=FrozenMap({"ttft_ms": 150}))
    run = [
        request(number * 1.0, 1.0, 0.1 if (number + worker) % 4 else 0.2)
        for worker in range(2)
        for number in range(50)
    ]

    for segment in segments_of(load, run):
        figures = segment_figures(segment, run, "minus_first_event", load.slo)
        slow = sum(one.ttft_ms == pytest.approx(200) for one in segment.requests)
        assert figures["goodput_rps"] == pytest.approx(2.0 * (1 - slow / len(segment.requests)), rel=0.02)


def test_a_share_needs_limits_and_an_invalid_request_meets_none() -> None:
    good, bad = request(0, 1, 0.1), RequestResult(valid=False, reason="timeout")

    assert share_met([good], "minus_first_event", {}) is None
    assert share_met([], "minus_first_event", {"ttft_ms": 1}) is None
    assert share_met([good, bad], "minus_first_event", {"ttft_ms": 500, "e2el_ms": 1000}) == 0.5
    assert share_met([good], "minus_first_event", {"tpot_ms": 9.0}) == 0
    # One token has no time per token.
    short = RequestResult(valid=True, written_s=0, first_event_s=0.1, last_event_s=0.1, output_tokens=1)
    assert share_met([short], "n_minus_1", {"tpot_ms": 1}) == 1
