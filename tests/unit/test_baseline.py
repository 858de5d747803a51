from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from baseline_samples import EMPTY_FILE, SPARK, TEST, WORK, file_with, record_at

from pytest_sparkperf.core.baseline import (
    Figure,
    RunState,
    append_record,
    baseline_from,
    figure_of,
    file_name,
    flag_gap,
    mean_flags,
    metrics_of,
    refusals,
    rounded,
)
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE
from pytest_sparkperf.core.summary import Summary


def runs(file: Any) -> list[str]:
    return [record.run for record in file.series[0].records]


def test_the_last_ten_records_and_the_first_five_are_kept() -> None:
    file = file_with(*(record_at(day) for day in range(1, 21)))

    assert runs(file) == [f"run-{day:02}" for day in (1, 2, 3, 4, 5, *range(11, 21))]
    assert [record.run for record in file.series[0].anchors] == [f"run-{day:02}" for day in range(1, 6)]
    assert [record.run for record in file.series[0].recent] == [f"run-{day:02}" for day in range(11, 21)]


def test_a_run_is_never_stored_twice() -> None:
    file = file_with(record_at(1), record_at(2))

    assert append_record(file, EMPTY_FILE, WORK, record_at(2, 50.0)) == file


def test_records_stand_in_the_order_of_their_time_however_they_arrive() -> None:
    assert runs(file_with(record_at(3), record_at(1), record_at(2))) == ["run-01", "run-02", "run-03"]


def test_other_work_has_a_series_of_its_own_in_a_stable_order() -> None:
    other = replace(WORK, k=0, speculator=None)
    one = append_record(file_with(record_at(1)), EMPTY_FILE, other, record_at(2))
    two = append_record(append_record(None, EMPTY_FILE, other, record_at(2)), EMPTY_FILE, WORK, record_at(1))

    assert one == two
    assert [series.work for series in one.series] == [other, WORK]


def test_a_file_of_another_test_or_machine_takes_no_record() -> None:
    with pytest.raises(ConfigError) as raised:
        append_record(replace(EMPTY_FILE, machine=SIMULATED_MACHINE), EMPTY_FILE, WORK, record_at(1))

    assert str(raised.value) == (
        "the baseline file of 'tests/test_speed.py::test_decode[k3]' on simulator cannot take a run of "
        "'tests/test_speed.py::test_decode[k3]' on gb10-1x-aarch64-20c-128g-8684: it was copied or renamed; "
        "remove it, or give the test another name=..."
    )


def test_a_file_holds_a_bounded_number_of_works() -> None:
    file = EMPTY_FILE
    for k in range(6):
        file = append_record(file, EMPTY_FILE, replace(WORK, k=k), record_at(1))

    with pytest.raises(ConfigError) as raised:
        append_record(file, EMPTY_FILE, replace(WORK, k=6), record_at(1))

    assert str(raised.value) == (
        "the baseline of 'tests/test_speed.py::test_decode[k3]' on gb10-1x-aarch64-20c-128g-8684 holds 6 "
        "kinds of work already, which is all a file may hold; remove old ones with sparkperf baseline "
        "prune, or give the tests names of their own by name=..."
    )


def test_figures_become_the_baseline_of_the_sampler() -> None:
    records = [record_at(1, 100.0), record_at(2, 102.0, commit="abc"), record_at(3, 5.0, metric="ttft_ms")]

    baseline = baseline_from(records, "decode_tok_s")

    assert baseline is not None
    assert baseline.thetas == (math.log(100.0), math.log(102.0))
    assert baseline.temperatures_c == (61.0, 61.0)
    latency = baseline_from(records, "ttft_ms")
    assert latency is not None
    assert latency.thetas == (-math.log(5.0),), "less latency is more speed"
    assert baseline_from(records, "itl_ms") is None
    assert metrics_of(records) == ["decode_tok_s", "ttft_ms"]


@pytest.mark.parametrize(
    ("metric", "theta"), [("decode_tok_s", math.log(104.6)), ("ttft_ms", -math.log(104.6))]
)
def test_a_summary_becomes_a_figure_in_the_metrics_unit(metric: str, theta: float) -> None:
    assert figure_of(metric, Summary(theta, 0.00775123, 12, 48, 0, 0.0)) == Figure(104.6, 0.00775)


def test_rounding_keeps_what_matters() -> None:
    assert rounded(104.61234567) == 104.612
    assert rounded(0.000123456789) == 0.000123457


SOUND = RunState(rounds=8, steady=True, simulated=False, rise_c=1.0)


def test_a_sound_run_may_be_recorded() -> None:
    assert refusals(SOUND, SPARK) == ()
    assert refusals(replace(SOUND, rise_c=None), SPARK) == ()
    assert refusals(replace(SOUND, simulated=True), SIMULATED_MACHINE) == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rounds": 7}, "it has 7 rounds, a record needs 8: raise budget_s"),
        ({"steady": False}, "it never became steady"),
        ({"rise_c": 1.24}, "the GPU warmed by 1.2 C during it, at most 1 C is steady"),
        ({"broken": "a request failed twice"}, "it is no valid measurement (a request failed twice)"),
        (
            {"failed": "max_slowdown"},
            (
                "it FAILed max_slowdown, and what fails does not become the norm by itself: if the change "
                "is meant, remove the old records by sparkperf baseline prune first"
            ),
        ),
        (
            {"throttled": ("hardware slowdown", "hardware power brake")},
            "the GPU was throttled (hardware slowdown, hardware power brake)",
        ),
        (
            {"unfit": "SM clock 799 MHz under load"},
            "the hardware is not fit (SM clock 799 MHz under load)",
        ),
        ({"simulated": True}, "it is simulated and would stand among records of real hardware"),
    ],
)
def test_an_unsound_run_is_refused_with_the_reason(change: dict[str, Any], text: str) -> None:
    assert refusals(replace(SOUND, **change), SPARK) == (text,)


def test_a_real_run_does_not_stand_among_simulated_ones_and_all_reasons_are_named() -> None:
    assert refusals(replace(SOUND, rounds=3, steady=False), SIMULATED_MACHINE) == (
        "it never became steady",
        "it is real and would stand among records of the simulator",
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model": "b"}, "model acme/m-35b in the baseline, b today"),
        ({"k": 0, "speculator": None}, "k 3 in the baseline, 0 today"),
        ({"speculator": "eagle3"}, "speculator mtp in the baseline, eagle3 today"),
        ({"workload": "f" * 16}, f"workload digest 0123456789abcdef in the baseline, {'f' * 16} today"),
        ({"metric_rule": None}, "TPOT rule minus_first_event in the baseline, unknown today"),
        ({"source": "llama-benchy"}, "source own in the baseline, llama-benchy today"),
    ],
)
def test_the_first_difference_of_works_is_named(change: dict[str, Any], text: str) -> None:
    assert WORK.first_difference(replace(WORK, **change)) == text
    assert WORK.first_difference(WORK) is None


def test_works_are_described() -> None:
    assert WORK.describe() == "acme/m-35b k=3 mtp, workload 0123456789abcdef"
    imported = replace(WORK, k=None, speculator=None, source="llama-benchy")
    assert (
        imported.describe() == "acme/m-35b k unknown, workload 0123456789abcdef, imported from llama-benchy"
    )


def test_file_names_are_file_safe_distinct_and_readable() -> None:
    assert file_name(TEST) == "tests-test_speed-test_decode-k3-cf825f15.yaml"
    assert file_name("single-stream") == "single-stream.yaml"
    names = [
        "tests/test_speed.py::TestSpeed::test_a", "tests/test_speed.py::TestSpeed::test_b", "test_p[short]",
        "test_p[long[x]/1]", "test_p[long[x]-1]", "test_p[long(x)/1]", "test_p", "Test_p", "test-p", "", ".",
        "..", "../../etc/passwd", "a" * 300, "a" * 301, "t\u00e9st", "t\ud800st", "x\0y",
        "single-stream-0123abcd",
    ]  # fmt: skip

    files = [file_name(name) for name in names]

    assert len({file.lower() for file in files}) == len(names)
    assert all(
        len(file) < 110 and "/" not in file and not file.startswith(".") and file.isascii() for file in files
    )


def test_flags_that_differ_by_more_than_ten_points_are_different_work() -> None:
    assert flag_gap({"degenerate": 0.02}, {"degenerate": 0.12, "past_end": 0.1}) is None
    assert flag_gap({}, {"degenerate": 0.25}) == (
        "0% of the requests were degenerate in the baseline and 25% today: these runs did different work, "
        "their speeds say nothing about each other; look at the texts, and record a new baseline if the "
        "change is meant"
    )
    records = [record_at(1, flags=FrozenMap({"past_end": 0.5})), record_at(2)]
    assert mean_flags(records) == {"past_end": 0.25}
