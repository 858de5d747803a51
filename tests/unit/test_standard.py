from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from baseline_samples import SPARK, TEST, WORK, file_with, record_at

from pytest_sparkperf.core.baseline import Record
from pytest_sparkperf.core.gate import GateSpec, parse_mark
from pytest_sparkperf.core.lookup import Found, GateIdentity, Problem, choose
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.core.standard import beside, of_other_work, standard_of, unjudged

NOW = datetime(2026, 12, 1, tzinfo=UTC)
SPEC = parse_mark({"max_slowdown": 0.05, "min_decode": 80})
THREE = tuple(record_at(day, 100.0) for day in (1, 2, 3))


def found(*records: Record, metrics: tuple[str, ...] = ("decode_tok_s",)) -> Found:
    chosen = choose(file_with(*records), GateIdentity(TEST, SPARK, WORK, metrics), NOW)
    assert isinstance(chosen, Found), chosen
    return chosen


def result(value: float, outcome: Any = "PASS", low: float = 0.97) -> Result:
    verdict = Verdict("max_slowdown", outcome, value / 100, low, 1.03, 0.95, 0.9)
    return Result(decode_tok_s=value, rounds=3, verdicts=(verdict,))


def test_a_gate_is_judged_by_the_latest_runs() -> None:
    standard = standard_of(SPEC, found(*THREE))

    assert [claim.gate for claim in standard.claims] == ["min_decode", "max_slowdown"]
    assert set(standard.baselines) == {"max_slowdown"}


@pytest.mark.parametrize(
    ("slowdown", "anchored"),
    [(0.05, "max_slowdown[anchor]"), ({"decode_tok_s": 0.05}, "max_slowdown[decode_tok_s, anchor]")],
)
def test_a_gate_is_judged_by_the_first_accepted_runs_too(slowdown: Any, anchored: str) -> None:
    spec = parse_mark({"max_slowdown": slowdown})
    standard = standard_of(spec, found(*(record_at(day, 100.0 - day) for day in range(1, 21))))

    recent, anchor = standard.claims
    assert (anchor.gate, anchor.line, anchor.mark) == (anchored, recent.line, recent.mark)
    assert standard.baselines[anchor.gate].mean > standard.baselines[recent.gate].mean


def test_without_a_baseline_only_the_other_limits_are_measured() -> None:
    assert [claim.gate for claim in standard_of(SPEC, None).claims] == ["min_decode"]
    assert standard_of(parse_mark({"max_slowdown": 0.05}), None).claims == ()


@pytest.mark.parametrize(
    ("action", "outcome", "excused"),
    [
        ("ERROR", "ERROR", False),
        ("INCONCLUSIVE", "INCONCLUSIVE", False),
        ("SKIP", "INCONCLUSIVE", True),
    ],
)
def test_what_nothing_can_judge_never_passes(action: Any, outcome: str, excused: bool) -> None:
    (verdict,) = unjudged(SPEC, Problem("missing", "nothing is there"), action)

    assert (verdict.gate, verdict.outcome, verdict.excused) == ("max_slowdown", outcome, excused)
    assert (verdict.reason, verdict.estimate, verdict.limit) == ("nothing is there", None, 0.95)


def lines(spec: GateSpec, stored: Found, today: Result, facts: dict[str, Any]) -> tuple[str, ...]:
    return beside(spec, stored, today, facts)


def test_a_verdict_names_both_figures_and_what_differs() -> None:
    said = lines(SPEC, found(*THREE), result(52.3, "FAIL"), {"vllm": "0.26.1", "temperature_c": 70})

    assert said == (
        (
            "decode_tok_s: 52.30 tok/s today, 100.0 tok/s in the baseline (mean of 3 records, 2026-11-01 to "
            "2026-11-03)"
        ),
        "differs from the baseline, most likely cause first: vLLM 0.24.0 -> 0.26.1",
    )


def test_first_accepted_runs_are_shown_beside_the_latest() -> None:
    stored = found(*(record_at(day, 121.0 - day) for day in range(1, 21)))

    assert lines(SPEC, stored, result(100), {"vllm": "0.24.0"})[0] == (
        "decode_tok_s: 100.0 tok/s today, 105.5 tok/s in the baseline (mean of 10 records, 2026-11-11 to "
        "2026-11-20), 118.0 tok/s in the first accepted runs (mean of 5 records, 2026-11-01 to 2026-11-05)"
    )


def test_a_latency_is_shown_in_its_unit_and_a_missing_figure_as_missing() -> None:
    spec = parse_mark({"max_slowdown": {"ttft_ms": 0.2}})
    stored = found(*(record_at(day, 150.0, metric="ttft_ms") for day in (1, 2, 3)), metrics=("ttft_ms",))

    assert lines(spec, stored, Result(), {"vllm": "0.24.0"})[0] == (
        "ttft_ms: not measured today, 150.0 ms in the baseline (mean of 3 records, 2026-11-01 to 2026-11-03)"
    )


def test_a_faster_run_suggests_recording_and_a_narrow_margin_is_warned_of() -> None:
    spec = parse_mark({"max_slowdown": 0.02})

    assert lines(spec, found(*THREE), result(120, low=1.15), {"vllm": "0.24.0"})[1:] == (
        "no recorded fact differs from the baseline",
        (
            "max_slowdown=0.02 of decode_tok_s is narrower than 0.044, what 3 records of this spread can "
            "decide: an unchanged server will often end INCONCLUSIVE; widen it, record more runs, or compare "
            "with a second server (against=...)"
        ),
        (
            "decode_tok_s is at least 15.0% faster than the baseline, so a later loss of that much would "
            "pass: record this state with pytest --sparkperf --sparkperf-record"
        ),
    )


def test_runs_that_did_other_work_are_an_error_and_no_verdict() -> None:
    limit = Verdict("min_decode", "PASS", 100, 97, 103, 80, 90)
    compared = result(100).verdicts[0]

    same = of_other_work([limit, compared], found(*THREE), {"degenerate": 0.08})
    other = of_other_work([limit, compared], found(*THREE), {"degenerate": 0.5})

    assert same == [limit, compared]
    assert other == [limit, replace(compared, outcome="ERROR", reason=other[1].reason)]
    assert other[1].reason == (
        "0% of the requests were degenerate in the baseline and 50% today: these runs did different work, "
        "their speeds say nothing about each other; look at the texts, and record a new baseline if the "
        "change is meant"
    )
