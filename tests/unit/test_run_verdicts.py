"""Verdicts on a run, and what is said of it."""

from __future__ import annotations

import random

import pytest

from pytest_sparkperf.core.claim import ceiling, floor
from pytest_sparkperf.core.heat import NO_ALLOWANCE
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.run_verdicts import (
    coverage,
    held_back,
    judge_run,
    late,
    percentile,
    queue_note,
    sending,
    too_short,
)
from pytest_sparkperf.core.sampling import Plan
from pytest_sparkperf.core.taken import Taken

PLAN = Plan((0,))


def rounds(rate: float | None, count: int = 12) -> list[Taken]:
    draw = random.Random(1)
    found = []
    for number in range(count):
        value = None if rate is None else rate * draw.uniform(0.99, 1.01)
        ttft_ms = [draw.uniform(90, 110) for _ in range(20)]
        found.append(Taken(number, {(0, "B"): {"output_tok_s": value}}, {"ttft_ms": list(ttft_ms)}))
    return found


@pytest.mark.parametrize(("limit", "outcome"), [(90, "PASS"), (110, "FAIL"), (100, "INCONCLUSIVE")])
def test_segments_are_judged_at_one_look(limit: float, outcome: str) -> None:
    [verdict] = judge_run(
        rounds(100), [floor("min_output_throughput", "output_tok_s", limit)], PLAN, NO_ALLOWANCE
    )

    assert (verdict.outcome, verdict.rounds) == (outcome, 12)
    assert verdict.estimate == pytest.approx(100, rel=0.01)


def test_a_percentile_is_about_the_requests_of_all_segments() -> None:
    claims = [
        ceiling(f"max_ttft_p{q}_ms", "ttft_ms", bound, quantile=q / 100) for q, bound in ((90, 120), (50, 80))
    ]

    assert [one.outcome for one in judge_run(rounds(100), claims, PLAN, NO_ALLOWANCE)] == ["PASS", "FAIL"]


def test_a_missing_figure_is_an_error() -> None:
    [verdict] = judge_run(
        rounds(None), [floor("min_output_throughput", "output_tok_s", 1)], PLAN, NO_ALLOWANCE
    )

    assert verdict.outcome == "ERROR"
    assert verdict.reason == (
        "output_tok_s was not measured in round 1 (cell 0): a missing figure is never judged, see the "
        "invalid "
        "requests"
    )


def test_coverage_is_said() -> None:
    load = Load(concurrency=32, requests=1000)

    assert coverage(load, 1000, 12, 78, 812.34) == (
        "1000 of 1000 requests sent in 812.3 s; 936 between ramp and drain, in 12 segments of 78"
    )
    assert coverage(load, 40, 0, 0, 60.0) == (
        "40 of 1000 requests sent in 60.0 s, cut when budget_s was spent"
    )
    assert too_short(load, 40) == (
        "40 of 1000 requests leave too little between ramp and drain for a verdict: raise budget_s, or ask "
        "for "
        "shorter answers"
    )


def test_sending_is_said_and_a_saturated_client_is_found() -> None:
    lags_ms = [0.5] * 98 + [9.0, 30.0]

    assert sending(lags_ms, 17) == (
        "sent within 0.5 ms of their schedule (p50), 30.0 ms (p99); up to 17 under way"
    )
    assert late(lags_ms) is None
    assert late([25.0] * 3) == (
        "requests were sent 25 ms after they were due (p50), so the load was not what was asked for: this "
        "client is saturated; lower request_rate, or keep other load off its machine"
    )


def test_what_waited_in_the_client_is_said() -> None:
    load = Load(requests=1000, request_rate=50.0, concurrency=256, capped=False)

    assert held_back(0, 1000, load) is None
    assert held_back(17, 1000, load) == (
        "17 of 1000 requests waited for one of the 256 streams that one client holds: the server falls "
        "behind 50 requests a second; lower request_rate, or make a cap part of the load (concurrency=256)"
    )


def test_a_queue_is_said() -> None:
    assert queue_note(16, 4) == (
        "queueing: 16 requests at once are more than the 4 that the server runs (max-num-seqs), so TTFT, "
        "E2EL "
        "and requests per second measure its queue"
    )


def test_a_percentile_needs_values() -> None:
    assert [percentile([3.0, 1.0, 2.0], q) for q in (0, 50, 100)] == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="a percentile needs values"):
        percentile([], 50)
