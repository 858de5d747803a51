"""``max_slowdown`` without ``against``: judged by what this machine recorded, and never passed without."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from git_command import git
from suite_runner import Suite

from pytest_sparkperf.adapters.baseline_text import baseline_text
from pytest_sparkperf.adapters.store import FolderStore, baseline_path, load_file
from pytest_sparkperf.core.baseline import (
    FOLDER,
    TIME_FORMAT,
    BaselineFile,
    Figure,
    Record,
    Work,
    append_record,
)
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE, Machine, declared_machine
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.targets import Hardware
from pytest_sparkperf.core.workload import workload_digest

TOKENS = 24
WORK = Work(
    "nvidia/Qwen3.6-35B-A3B-NVFP4",
    0,
    None,
    workload_digest(Load(output_tokens=TOKENS), shipped_prompts(1)),
    "minus_first_event",
)
HEAD = "from pytest_sparkperf import sparkperf\n"
RECORD = "pytest --sparkperf --sparkperf-record"


def stored(
    test: str,
    rate: float = 100.0,
    *,
    count: int = 3,
    age_days: int = 0,
    work: Work = WORK,
    machine: Machine = SIMULATED_MACHINE,
) -> BaselineFile:
    """Return a file of ``count`` runs at a rate, the newest ``age_days`` old."""
    file = empty = BaselineFile(test, machine)
    for number in range(count):
        at = datetime.now(UTC) - timedelta(days=age_days + count - number)
        run = Record(
            f"run-{number}",
            at.strftime(TIME_FORMAT),
            8,
            {"decode_tok_s": Figure(rate, 0.01)},
            facts=FrozenMap({"vllm": "0.24.0", "bios": "1.1"}),
        )
        file = append_record(file, empty, work, run)
    return file


def keep(root: Path, file: BaselineFile, *, under: str | None = None, data: bytes | None = None) -> None:
    path = root / FOLDER / (under or baseline_path(file.machine, file.test))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(baseline_text(file) if data is None else data)


def gate(name: str, keywords: str = "max_slowdown=0.1") -> str:
    return (
        f"@sparkperf({keywords}, name={name!r}, output_tokens={TOKENS}, max_rounds=3)\n"
        f"def test_{name}(): print('the body ran')\n\n"
    )


def test_each_reason_for_having_no_baseline_has_its_own_outcome_and_none_passes(suite: Suite) -> None:
    root, spark = suite.pytester.path, declared_machine(Hardware("NVIDIA GB10", 1, 128))
    keep(root, stored("few", count=2))
    keep(root, stored("stale", age_days=200))
    keep(root, stored("foreign", machine=spark))
    keep(root, stored("other", work=replace(WORK, k=3)))
    keep(root, stored("copied", machine=spark), under="simulator/copied.yaml")
    keep(root, stored("corrupt"), data=b"- 1\n")
    keep(root, stored("newer"), data=b"schema_version: 9\n")
    names = ("none", "few", "stale", "foreign", "other", "copied", "corrupt", "newer")
    suite.pytester.makepyfile(test_it=HEAD + "".join(map(gate, names)))

    result = suite.quick_run("--sparkperf-url", suite.url, "-rs")

    result.assert_outcomes(failed=6, skipped=2)
    out = str(result.stdout)
    assert "the body ran" not in out
    for text in (
        (
            "ERROR max_slowdown=0.1: there is no baseline of 'none' for this machine (simulator); record 3 "
            f"runs of a state known to be good, each with {RECORD}, or say "
            "--sparkperf-missing-baseline=skip"
        ),
        (
            "INCONCLUSIVE max_slowdown=0.1: 2 of 3 records of decode_tok_s for 'few' on simulator: fewer say "
            f"nothing about how much runs differ by themselves; record 1 more with {RECORD}"
        ),
        "INCONCLUSIVE max_slowdown=0.1: the newest record of 'stale' on simulator is 201 days old (",
        (
            "ERROR max_slowdown=0.1: there is no baseline of 'foreign' for this machine (simulator), only "
            f"for {spark.slug}, and another machine's figures are never compared; record on this one: "
            f"{RECORD}"
        ),
        (
            "ERROR max_slowdown=0.1: no comparable baseline of 'other' on simulator: k 3 in the baseline, 0 "
            f"today; record what runs today with {RECORD}, or measure what was recorded"
        ),
        (
            "ERROR max_slowdown=0.1: the baseline file found for 'copied' on simulator says that it is of "
            f"'copied' on {spark.slug}: it was copied or renamed; remove it and record on this machine: "
            f"{RECORD}"
        ),
        "ERROR max_slowdown=0.1: the baseline cannot be used:\n",
        f"{root / FOLDER}/simulator/corrupt.yaml:1: [1] is not a baseline; remove the file, or take it from",
        "ERROR max_slowdown=0.1: the baseline is newer than this version of pytest-sparkperf:\n",
        f"{root / FOLDER}/simulator/newer.yaml:1: schema_version: 9 is newer than 1, the newest that this",
    ):
        assert f"SIMULATED {text}" in out or f"\n{text}" in out, text


def test_nothing_recorded_may_be_skipped_and_then_fails_no_run(suite: Suite) -> None:
    keep(suite.pytester.path, stored("corrupt"), data=b"- 1\n")
    suite.pytester.makepyfile(test_it=HEAD + gate("none") + gate("corrupt"))
    both = suite.run("--sparkperf-missing-baseline=skip")
    alone = suite.run("--sparkperf-missing-baseline=skip", "--sparkperf-inconclusive=fail", "-k", "none")

    both.assert_outcomes(failed=1, skipped=1)
    alone.assert_outcomes(skipped=1, deselected=1)
    assert alone.ret == pytest.ExitCode.OK
    assert "NOT PROVEN" not in str(alone.stdout)
    alone.stdout.fnmatch_lines(
        ["  SIMULATED SKIPPED max_slowdown=0.1: there is no baseline of 'none' for this machine *"]
    )


@pytest.mark.slow
def test_stored_runs_judge_and_both_figures_are_named(suite: Suite) -> None:
    suite.pytester.makeconftest(
        "def pytest_sparkperf_fingerprint(config, target, facts):\n    return {'bios': f'1.2 for {target}'}\n"
    )
    keep(suite.pytester.path, stored("slower", 1.0))
    keep(suite.pytester.path, stored("faster", 1e6))
    suite.pytester.makepyfile(test_it=HEAD + gate("slower") + gate("faster"))

    result = suite.quick_run("--sparkperf-url", suite.url)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            r"SIMULATED FAIL max_slowdown=0\.1: 0\.000\d times the speed \(interval 0\.0\d+ to 0\.0\d+\).*",
            r"SIMULATED   a true ratio under 0\.\d+ would have failed with 90 % probability",
            (
                r"SIMULATED decode_tok_s: [\d.]+ tok/s today, 1,000,000 tok/s in the baseline \(mean of 3 "
                r"records, 20\d\d-\d\d-\d\d to 20\d\d-\d\d-\d\d\)"
            ),
            (
                r"SIMULATED differs from the baseline, most likely cause first: vLLM 0\.24\.0 -> "
                r"0\.32\.0\+sparkperf\.sim; bios 1\.1 -> 1\.2 for sparkperf-url"
            ),
            r"test_it\.py::test_slower",
            r"  SIMULATED PASS max_slowdown=0\.1: [\d.]+ times the speed \(interval [\d.]+ to [\d.]+\).*",
            (
                r"  SIMULATED decode_tok_s is at least [\d,.]+% faster than the baseline, so a later loss of "
                r"that much would pass: record this state with pytest --sparkperf --sparkperf-record"
            ),
        ]
    )


@pytest.mark.slow
def test_a_change_that_brings_its_own_baseline_fails_by_the_one_of_the_ref(suite: Suite) -> None:
    root = suite.pytester.path
    keep(root, stored("speed", 1e6))
    suite.pytester.makepyfile(test_it=HEAD + gate("speed"))
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Record a baseline")
    git(root, "checkout", "-qb", "change")
    keep(root, stored("speed", 1.0))
    git(root, "commit", "-qam", "Be slower, and say that it was always so")

    own = suite.run()
    of_ref = suite.run("--sparkperf-baseline-ref=main")

    own.assert_outcomes(passed=1)
    of_ref.assert_outcomes(failed=1)
    of_ref.stdout.fnmatch_lines(
        [
            "sparkperf: target *, baselines of main, inconclusive gates are skipped",
            "SIMULATED FAIL max_slowdown=0.1: 0.000* times the speed *",
            "SIMULATED decode_tok_s: * tok/s today, 1,000,000 tok/s in the baseline *",
        ]
    )


def test_facts_of_a_hook_that_cannot_be_kept_are_an_error_before_anything_is_measured(suite: Suite) -> None:
    suite.pytester.makeconftest(
        "def pytest_sparkperf_fingerprint(config, target, facts): return {'a': object}"
    )
    suite.pytester.makepyfile(test_it=HEAD + gate("none"))

    result = suite.quick_run("--sparkperf-url", suite.url)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            (
                "the hook pytest_sparkperf_fingerprint returned {'a': <class 'object'>}; return a mapping of "
                'names to texts, numbers, lists or mappings of these, such as {"bios": "1.2"}'
            )
        ]
    )


def test_a_run_that_has_nothing_to_record_says_so(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=f"{HEAD}@sparkperf(min_decode=1, name='PASS')\ndef test_it(): ...\n")

    result = suite.quick_run("--sparkperf-record")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "sparkperf: *, recording, inconclusive gates are skipped",
            (
                "nothing was recorded: no mark of these tests is judged by a baseline, which max_slowdown "
                "without against is"
            ),
        ]
    )


SPEEDS = """version: 1
default_target: usual
targets:
  usual: {launch: sim, args: {slowdown: 0.3, jit-s: 0}}
  half: {launch: sim, args: {slowdown: 0.6, jit-s: 0}}
"""
SUITE = f"""{HEAD}
@sparkperf(max_slowdown=0.2, prompt_tokens=40, output_tokens=32, max_rounds=6)
def test_speed(sparkperf_result): assert sparkperf_result.decode_tok_s
"""


@pytest.mark.slow
def test_three_runs_are_recorded_then_the_same_speed_passes_and_half_of_it_fails(suite: Suite) -> None:
    suite.yaml(SPEEDS)
    suite.pytester.makepyfile(test_it=SUITE)
    for number in (1, 2, 3):
        said = suite.run("--sparkperf-record", attach=False)
        said.assert_outcomes(passed=1)
        said.stdout.fnmatch_lines(
            [f"  SIMULATED recorded test_it.py::test_speed on simulator: {number} of at most 10 records"]
        )
    before = load_file(FolderStore(suite.pytester.path / FOLDER), _path())

    same = suite.run(attach=False)
    half = suite.run("--sparkperf-target=half", attach=False)
    kept = suite.run("--sparkperf-target=half", "--sparkperf-record", attach=False)

    same.assert_outcomes(passed=1)
    same.stdout.re_match_lines([r"  SIMULATED PASS max_slowdown=0\.2: (0\.9|1\.0)\d+ times the speed .*"])
    half.assert_outcomes(failed=1)
    half.stdout.re_match_lines(
        [
            r"SIMULATED FAIL max_slowdown=0\.2: 0\.[45]\d+ times the speed \(interval .*",
            r"SIMULATED decode_tok_s: [\d.]+ tok/s today, [\d.]+ tok/s in the baseline \(mean of 3 .*",
            r"SIMULATED differs from the baseline, most likely cause first: slowdown 0\.3 -> 0\.6",
        ]
    )
    kept.assert_outcomes(failed=1)
    kept.stdout.fnmatch_lines(
        ["SIMULATED test_it.py::test_speed was not recorded: it FAILed max_slowdown, and what fails does *"]
    )
    after = load_file(FolderStore(suite.pytester.path / FOLDER), _path())
    assert after == before
    assert after is not None
    (series,) = after.series
    assert [record.rounds for record in series.records] == [8, 8, 8]
    assert all(record.figures.keys() >= {"decode_tok_s", "ttft_ms"} for record in series.records)


def _path() -> str:
    return baseline_path(SIMULATED_MACHINE, "test_it.py::test_speed")


@pytest.mark.slow
def test_a_bootstrap_records_a_first_set_of_fresh_starts(suite: Suite) -> None:
    suite.yaml(SPEEDS)
    suite.pytester.makepyfile(test_it=SUITE)

    done = suite.pytester.run(
        sys.executable, "-m", "pytest_sparkperf", "baseline", "bootstrap", "--starts", "3", "-q", "test_it.py"
    )

    assert done.ret == 0
    assert str(done.stdout).splitlines()[-1].startswith("3 of 3 runs ended well; they are of one day: ")
    file = load_file(FolderStore(suite.pytester.path / FOLDER), _path())
    assert file is not None
    (series,) = file.series
    assert len(series.records) == 3
    (batch,) = {record.batch for record in series.records}
    assert batch is not None
    assert batch.startswith("bootstrap-")
