"""``sparkperf plan`` collects a suite as pytest would, and starts nothing."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from baseline_samples import SLUG, SPARK, WORK, record_at
from suite_runner import WITHOUT_UNUSED

from pytest_sparkperf.adapters.baseline_text import baseline_text
from pytest_sparkperf.adapters.store import baseline_path
from pytest_sparkperf.core.baseline import TIME_FORMAT, BaselineFile, append_record
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE, Machine, declared_machine, seen_machine
from pytest_sparkperf.core.targets import Hardware

SUITE = """
import pytest
from pytest_sparkperf import sparkperf

@sparkperf(min_decode=100, k=3)
def test_single_stream(): raise AssertionError("a plan runs no test")

@sparkperf(k=3, against={"k": 0}, min_speedup=1.25)
def test_mtp_pays(): ...

def test_without_a_mark(): ...
"""
CODE = "import sys; from pytest_sparkperf.cli.plan import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def plan(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(test_gates=SUITE)
    return pytester


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.run(sys.executable, "-c", CODE, *WITHOUT_UNUSED, *arguments)


def test_every_gate_is_planned_and_nothing_is_run(plan: pytest.Pytester) -> None:
    result = run(plan)

    assert result.ret == 0
    assert result.outlines == [
        "test_gates.py::test_single_stream",
        "  sim k=3; 3 to 12 rounds x 4 requests, about 1.0 to 3.4 min",
        "  min_decode=100: can only be judged outside 98.55 to 101.4 tok/s",
        "test_gates.py::test_mtp_pays",
        "  sim k=3 against sim k=0; 3 to 12 rounds x 8 requests, about 2.1 to 6.8 min",
        "  min_speedup=1.25: can only be judged outside 1.206 to 1.293",
        "2 gates, 2 starts of servers, about 3.2 to 10 min with starts, without soak",
        (
            "minutes at 70 tok/s of one stream, 4000 tok/s of prefill, 180 s a start; forecasts from assumed "
            "constants"
        ),
    ]


def test_arguments_of_pytest_choose_the_gates(plan: pytest.Pytester) -> None:
    result = run(plan, "--json", "--decode-tok-s", "35", "test_gates.py", "-k", "mtp")

    document = json.loads("\n".join(result.outlines))
    assert [gate["test"] for gate in document["gates"]] == ["test_gates.py::test_mtp_pays"]
    assert document["rates"]["decode_tok_s"] == 35


def test_a_suite_that_cannot_be_collected_is_shown_as_pytest_shows_it(plan: pytest.Pytester) -> None:
    plan.makepyfile(
        test_wrong="from pytest_sparkperf import sparkperf\n@sparkperf(min_decod=1)\ndef test_it(): ..."
    )

    result = run(plan)

    assert result.ret == 2
    assert result.outlines == []
    assert result.errlines[0] == "sparkperf plan: pytest could not collect the suite:"
    result.stderr.fnmatch_lines(["*test_it: min_decod is not a keyword of the sparkperf mark*"])


STORED_SUITE = """
from pytest_sparkperf import sparkperf

@sparkperf(target="spark", k=3, max_slowdown=0.05)
def test_decode(): ...
"""
SPARK_YAML = "version: 1\ntargets:\n  spark: {launch: vllm, model: some/model}\n"
OTHERS = (
    "  simulated: {launch: sim}\n"
    "  declared: {launch: attach, url: 'http://10.0.0.9:8000', k: 3, "
    "hardware: {gpu: NVIDIA H200, count: 1, memory_gib: 141}}\n"
)
OTHER_SPARK = seen_machine(
    [GpuState("NVIDIA GB10", capability="12.1")] * 2,
    cpu="Cortex-A725 + Cortex-X925",
    cores=20,
    architecture="aarch64",
    memory_kib=127_600_000,
)


def store_runs(folder: Path, test: str, machine: Machine = SPARK, count: int = 3) -> None:
    """Store runs of a test, all of today: older ones are no baseline one day."""
    file, now = BaselineFile(test, machine), datetime.now(UTC).strftime(TIME_FORMAT)
    for day, value in enumerate((99.5, 100.0, 100.5)[:count], start=1):
        record = replace(record_at(day, value), recorded_at=now)
        file = append_record(file, BaselineFile(test, machine), WORK, record)
    path = folder / baseline_path(machine, test)
    path.parent.mkdir(parents=True)
    path.write_bytes(baseline_text(file))


@pytest.mark.parametrize("arguments", [(), ("--key", SLUG)])
def test_a_gate_by_baseline_is_planned_by_the_runs_of_its_machine(
    plan: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    plan.makepyfile(test_gates=STORED_SUITE)
    plan.makefile(".yaml", sparkperf=SPARK_YAML)
    store_runs(plan.path / ".sparkperf" / "baselines", "test_gates.py::test_decode")

    result = run(plan, *arguments)

    assert result.ret == 0, result.errlines
    assert re.fullmatch(
        r"  max_slowdown=0\.05: can only be judged outside 0\.9\d+ to [\d.]+, by the runs stored of " + SLUG,
        result.outlines[2],
    )


def test_the_runs_of_a_test_with_a_name_are_found_by_it(plan: pytest.Pytester) -> None:
    plan.makepyfile(test_gates=STORED_SUITE.replace("k=3", "k=3, name='single stream'"))
    plan.makefile(".yaml", sparkperf=SPARK_YAML)
    store_runs(plan.path / "runs", "single stream")

    result = run(plan, "--sparkperf-baseline-dir", "runs")

    assert result.outlines[0] == "test_gates.py::test_decode"
    assert result.outlines[2].endswith(f", by the runs stored of {SLUG}")


@pytest.mark.parametrize(
    ("stored", "target"),
    [
        ([SPARK, OTHER_SPARK], "spark"),
        # What a simulator shows says nothing about a real server, nor the other way round.
        ([SIMULATED_MACHINE], "spark"),
        ([SPARK], "simulated"),
        ([SPARK], "declared"),
    ],
)
def test_no_machine_is_guessed_and_none_taken_that_the_server_is_not_on(
    plan: pytest.Pytester, stored: list[Machine], target: str
) -> None:
    plan.makepyfile(test_gates=STORED_SUITE.replace('spark"', f'{target}"'))
    plan.makefile(".yaml", sparkperf=SPARK_YAML + OTHERS)
    for machine in stored:
        store_runs(plan.path / "runs", "test_gates.py::test_decode", machine)

    result = run(plan, "--sparkperf-baseline-dir", "runs")

    assert result.ret == 0, result.errlines
    assert result.outlines[2] == (
        "  max_slowdown=0.05: depends on the spread of stored runs: none is known: record some, or name the "
        "machine by --key"
    )


def test_a_declared_machine_is_the_one_whose_runs_count(plan: pytest.Pytester) -> None:
    declared = declared_machine(Hardware("NVIDIA H200", 1, 141))
    plan.makepyfile(test_gates=STORED_SUITE.replace('spark"', 'declared"'))
    plan.makefile(".yaml", sparkperf=SPARK_YAML + OTHERS)
    for machine in (declared, SPARK):
        store_runs(plan.path / "runs", "test_gates.py::test_decode", machine)

    result = run(plan, "--sparkperf-baseline-dir", "runs")

    assert result.outlines[2].endswith(f", by the runs stored of {declared.slug}")


@pytest.mark.parametrize("arguments", [(), ("--key", SLUG)])
def test_too_few_runs_are_counted(plan: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    plan.makepyfile(test_gates=STORED_SUITE)
    plan.makefile(".yaml", sparkperf=SPARK_YAML)
    store_runs(plan.path / ".sparkperf" / "baselines", "test_gates.py::test_decode", count=2)

    result = run(plan, *arguments)

    assert result.ret == 0, result.errlines
    assert result.outlines[2] == (
        "  max_slowdown=0.05: depends on the spread of stored runs: 2 of 3 records of decode_tok_s for "
        f"'test_gates.py::test_decode' on {SLUG}: fewer say nothing about how much runs differ by "
        "themselves; record 1 more with pytest --sparkperf --sparkperf-record"
    )


def test_a_gate_without_runs_on_the_named_machine_says_so(plan: pytest.Pytester) -> None:
    other = STORED_SUITE + '@sparkperf(target="spark", k=3, max_slowdown=0.05)\ndef test_new(): ...\n'
    plan.makepyfile(test_gates=other)
    plan.makefile(".yaml", sparkperf=SPARK_YAML)
    store_runs(plan.path / "runs", "test_gates.py::test_decode")

    result = run(plan, "--sparkperf-baseline-dir", "runs", "--key", SLUG)

    assert result.ret == 0, result.errlines
    assert result.outlines[5] == (
        f"  max_slowdown=0.05: depends on the spread of stored runs: {SLUG} has none; record some there"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("-k", "nothing"),
            (
                "no test with a sparkperf mark was collected; name the files or folders that hold them, as "
                "for pytest"
            ),
        ),
        (
            ("--key", "gb10"),
            (
                "there is neither a calibration of 'gb10' in .sparkperf/calibration nor a stored run of "
                "these gates: run sparkperf calibrate there, or leave --key out for assumed constants"
            ),
        ),
        (
            ("--decode-tok-s", "0"),
            "--decode-tok-s 0, --prefill-tok-s 4000 and --start-s 180 give no minutes: use rates above 0",
        ),
    ],
)
def test_what_cannot_be_planned_is_said(plan: pytest.Pytester, arguments: tuple[str, ...], text: str) -> None:
    result = run(plan, *arguments)

    assert (result.ret, result.errlines) == (2, [f"sparkperf plan: {text}"])
