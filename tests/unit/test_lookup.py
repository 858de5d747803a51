from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from baseline_samples import EMPTY_FILE, SLUG, SPARK, TEST, WORK, file_with, record_at

from pytest_sparkperf.core.baseline import BaselineFile, append_record
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE
from pytest_sparkperf.core.lookup import (
    Action,
    Found,
    GateIdentity,
    MissingPolicy,
    Problem,
    ProblemKind,
    action,
    choose,
    choose_by_k,
    corrupt,
    faster_note,
    margin_note,
    missing,
    newer,
    recorded_lines,
    unidentified,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
GATE = GateIdentity(TEST, SPARK, WORK, ("decode_tok_s",))
THREE = (record_at(1, 100.0), record_at(2, 101.0), record_at(3, 99.0, facts={"vllm": "0.26.1"}))


def found(*args: object, **kwargs: object) -> Found:
    result = choose(*args, **kwargs)  # type: ignore[arg-type]  # passes through what each test gives
    assert isinstance(result, Found), result
    return result


def problem(*args: object, **kwargs: object) -> Problem:
    result = choose(*args, **kwargs)  # type: ignore[arg-type]  # passes through what each test gives
    assert isinstance(result, Problem), result
    return result


def test_three_records_of_the_same_work_are_a_baseline() -> None:
    result = found(file_with(*THREE), GATE, NOW)

    assert len(result.baselines["decode_tok_s"].thetas) == 3
    assert result.baselines["decode_tok_s"].temperature_c == 61.0
    assert result.anchors == {}, "the first runs are the latest ones"
    assert dict(result.facts) == {"vllm": "0.26.1"}
    assert result.notes == ()


def test_the_first_accepted_runs_are_an_anchor_once_later_ones_replaced_them() -> None:
    result = found(file_with(*(record_at(day, 100.0 - day) for day in range(1, 21))), GATE, NOW)

    assert len(result.baselines["decode_tok_s"].thetas) == 10
    assert len(result.anchors["decode_tok_s"].thetas) == 5
    assert result.anchors["decode_tok_s"].mean > result.baselines["decode_tok_s"].mean


def test_a_forecast_takes_the_runs_of_its_k_that_were_recorded_last() -> None:
    newer = replace(WORK, workload="f" * 16)
    file = file_with(*THREE)
    for record in (record_at(4, 90.0), record_at(5, 91.0), record_at(6, 92.0)):
        file = append_record(file, EMPTY_FILE, newer, replace(record, run=f"{record.run} of another load"))

    chosen = choose_by_k(file, TEST, 3, ["decode_tok_s"], NOW)

    assert isinstance(chosen, Found)
    assert chosen.baselines["decode_tok_s"].mean == pytest.approx(sum(map(math.log, (90.0, 91.0, 92.0))) / 3)
    assert choose_by_k(file, TEST, None, ["decode_tok_s"], NOW) == chosen


@pytest.mark.parametrize(
    ("file", "asked", "kind"),
    [
        (file_with(*THREE), {"k": 0}, "incomparable"),
        (file_with(*THREE, work=replace(WORK, source="llama-benchy")), {}, "incomparable"),
        (file_with(*THREE[:2]), {}, "too_few"),
        (file_with(*THREE), {"metrics": ["ttft_ms"]}, "too_few"),
        (file_with(*THREE), {"test": "test_other.py::test_it"}, "mismatch"),
        (file_with(*THREE), {"now": datetime(2027, 12, 1, tzinfo=UTC)}, "stale"),
    ],
)
def test_a_forecast_rests_on_nothing_that_a_gate_would_refuse(
    file: BaselineFile, asked: dict[str, Any], kind: str
) -> None:
    chosen = choose_by_k(file, **{"test": TEST, "k": 3, "metrics": ["decode_tok_s"], "now": NOW, **asked})

    assert isinstance(chosen, Problem)
    assert chosen.kind == kind


def test_a_forecast_without_a_run_of_that_k_says_so() -> None:
    assert choose_by_k(file_with(*THREE), TEST, 0, ["decode_tok_s"], NOW) == Problem(
        "incomparable", f"no run of {TEST!r} with k=0 is stored of {SLUG}"
    )


def test_records_of_one_day_say_so() -> None:
    records = [replace(record_at(1, 100.0 + n), run=f"run {n}") for n in range(5)]

    assert found(file_with(*records), GATE, NOW).notes == (
        "all 5 records are of one day (2026-11-01): the spread between days is not in them",
    )


def test_records_of_one_bootstrap_are_of_one_day_even_past_midnight() -> None:
    records = [replace(record_at(day), batch="bootstrap-1") for day in (1, 1, 2)]
    records = [replace(record, run=f"run {n}") for n, record in enumerate(records)]

    assert found(file_with(*records), GATE, NOW).notes == (
        "all 3 records are of one day (2026-11-01): the spread between days is not in them",
    )
    assert found(file_with(*records, record_at(5)), GATE, NOW).notes == ()


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_records_are_inconclusive(count: int) -> None:
    result = problem(file_with(*THREE[:count]), GATE, NOW)

    assert result == Problem(
        "too_few",
        f"{count} of 3 records of decode_tok_s for 'tests/test_speed.py::test_decode[k3]' on "
        "gb10-1x-aarch64-20c-128g-8684: fewer say nothing about how much runs differ by themselves; record "
        f"{3 - count} more with pytest --sparkperf --sparkperf-record",
    )
    assert action(result) == "INCONCLUSIVE"


def test_records_without_the_metric_are_too_few() -> None:
    result = problem(file_with(*THREE), replace(GATE, metrics=("decode_tok_s", "ttft_ms")), NOW)

    assert result.kind == "too_few"
    assert result.text.startswith("0 of 3 records of ttft_ms for ")


def test_records_of_other_work_are_not_comparable_and_the_first_difference_is_named() -> None:
    file = file_with(*THREE, work=replace(WORK, model="acme/other"))
    file = append_record(file, EMPTY_FILE, replace(WORK, k=0, speculator=None), record_at(4))
    file = append_record(file, EMPTY_FILE, replace(WORK, workload="f" * 16), record_at(5))

    assert problem(file, GATE, NOW) == Problem(
        "incomparable",
        "no comparable baseline of 'tests/test_speed.py::test_decode[k3]' on gb10-1x-aarch64-20c-128g-8684: "
        f"workload digest {'f' * 16} in the baseline, 0123456789abcdef today; record what runs today with "
        "pytest --sparkperf --sparkperf-record, or measure what was recorded",
    )


def test_imported_records_are_never_judged_against() -> None:
    file = file_with(*THREE, work=replace(WORK, source="vllm bench serve"))

    assert problem(file, GATE, NOW) == Problem(
        "incomparable",
        "no comparable baseline of 'tests/test_speed.py::test_decode[k3]' on gb10-1x-aarch64-20c-128g-8684: "
        "source vllm bench serve in the baseline, own today; imported figures are shown and never judged "
        "against; record what runs today with pytest --sparkperf --sparkperf-record, or measure what was "
        "recorded",
    )


def test_an_empty_file_has_no_comparable_baseline() -> None:
    assert problem(EMPTY_FILE, GATE, NOW) == Problem(
        "incomparable",
        "no comparable baseline of 'tests/test_speed.py::test_decode[k3]': its file holds no records; "
        "record with pytest --sparkperf --sparkperf-record",
    )


def test_old_records_are_inconclusive() -> None:
    later = datetime(2027, 6, 1)
    assert isinstance(choose(file_with(*THREE), GATE, datetime(2027, 5, 1, tzinfo=UTC)), Found)
    assert isinstance(choose(file_with(*THREE), GATE, later, max_age_days=400), Found)

    result = problem(file_with(*THREE), GATE, later)

    assert result == Problem(
        "stale",
        "the newest record of 'tests/test_speed.py::test_decode[k3]' on gb10-1x-aarch64-20c-128g-8684 is "
        "209 days old (2026-11-03T10:00:00Z), more than 180: the server may have become faster since, and a "
        "loss would pass; record again with pytest --sparkperf --sparkperf-record",
    )
    assert action(result) == "INCONCLUSIVE"


def test_a_file_that_was_copied_from_another_machine_is_not_used() -> None:
    result = problem(replace(file_with(*THREE), machine=SIMULATED_MACHINE), GATE, NOW)

    assert result == Problem(
        "mismatch",
        "the baseline file found for 'tests/test_speed.py::test_decode[k3]' on "
        "gb10-1x-aarch64-20c-128g-8684 says that it is of 'tests/test_speed.py::test_decode[k3]' on "
        "simulator: it was copied or renamed; remove it and record on this machine: pytest --sparkperf "
        "--sparkperf-record",
    )


def test_a_missing_baseline_says_how_to_record_one() -> None:
    assert missing(GATE, []) == Problem(
        "missing",
        "there is no baseline of 'tests/test_speed.py::test_decode[k3]' for this machine "
        "(gb10-1x-aarch64-20c-128g-8684); record 3 runs of a state known to be good, each with pytest "
        "--sparkperf --sparkperf-record, or say --sparkperf-missing-baseline=skip",
    )


def test_a_baseline_of_another_machine_is_named_and_not_used() -> None:
    assert missing(GATE, ["simulator", "h200-1x-x86_64-16c-144g-d3c4"]) == Problem(
        "foreign",
        "there is no baseline of 'tests/test_speed.py::test_decode[k3]' for this machine "
        "(gb10-1x-aarch64-20c-128g-8684), only for h200-1x-x86_64-16c-144g-d3c4, simulator, and another "
        "machine's figures are never compared; record on this one: pytest --sparkperf --sparkperf-record",
    )


def test_other_problems_carry_what_was_found() -> None:
    assert unidentified("why").text == "no baseline can be chosen: why"
    assert corrupt("f.yaml:3: x").text == "the baseline cannot be used:\nf.yaml:3: x"
    assert (
        newer("f.yaml:1: y").text
        == "the baseline is newer than this version of pytest-sparkperf:\nf.yaml:1: y"
    )


@pytest.mark.parametrize(
    ("kind", "fail", "skip"),
    [
        ("missing", "ERROR", "SKIP"),
        ("foreign", "ERROR", "SKIP"),
        ("incomparable", "ERROR", "SKIP"),
        ("too_few", "INCONCLUSIVE", "INCONCLUSIVE"),
        ("stale", "INCONCLUSIVE", "INCONCLUSIVE"),
        ("corrupt", "ERROR", "ERROR"),
        ("newer_schema", "ERROR", "ERROR"),
        ("mismatch", "ERROR", "ERROR"),
        ("unidentified", "ERROR", "ERROR"),
        ("broken", "ERROR", "ERROR"),
    ],
)
def test_no_problem_ever_passes_and_only_nothing_recorded_may_be_skipped(
    kind: ProblemKind, fail: Action, skip: Action
) -> None:
    policies: tuple[MissingPolicy, ...] = ("fail", "skip")
    assert tuple(action(Problem(kind, ""), policy) for policy in policies) == (fail, skip)


def test_a_margin_that_the_records_cannot_decide_is_warned_of() -> None:
    baseline = found(file_with(*THREE), GATE, NOW).baselines["decode_tok_s"]

    assert margin_note("decode_tok_s", 0.06, baseline) is None
    assert margin_note("decode_tok_s", 0.03, baseline) == (
        "max_slowdown=0.03 of decode_tok_s is narrower than 0.054, what 3 records of this spread can "
        "decide: an unchanged server will often end INCONCLUSIVE; widen it, record more runs, or compare "
        "with a second server (against=...)"
    )


def test_a_proven_gain_suggests_recording() -> None:
    assert faster_note("decode_tok_s", None) is None
    assert faster_note("decode_tok_s", 1.009) is None
    assert faster_note("decode_tok_s", 1.052) == (
        "decode_tok_s is at least 5.2% faster than the baseline, so a later loss of that much would pass: "
        "record this state with pytest --sparkperf --sparkperf-record"
    )


def test_recording_says_what_the_store_can_decide() -> None:
    assert recorded_lines(file_with(*THREE[:2]), WORK, ("decode_tok_s",)) == [
        (
            "recorded tests/test_speed.py::test_decode[k3] on gb10-1x-aarch64-20c-128g-8684: 2 of at most "
            "10 records"
        ),
        "  1 more until gates can be judged against them",
    ]
    assert recorded_lines(file_with(*THREE), WORK, ("decode_tok_s", "ttft_ms")) == [
        (
            "recorded tests/test_speed.py::test_decode[k3] on gb10-1x-aarch64-20c-128g-8684: 3 of at most "
            "10 records"
        ),
        "  decode_tok_s 99.00 tok/s; smallest margin: max_slowdown=0.054 passes 95 % of unchanged runs",
    ]
    assert recorded_lines(EMPTY_FILE, WORK, ()) == []
