from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from baseline_samples import SPARK, TEST

from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.adapters.store import FolderStore, baseline_path, load_file
from pytest_sparkperf.core.baseline import Figure, Record
from pytest_sparkperf.core.evidence import Evidence
from pytest_sparkperf.core.fingerprint import Surroundings
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.hardware import Machine
from pytest_sparkperf.core.lookup import Found, Problem, broken, unidentified
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.experiment.known import Known
from pytest_sparkperf.experiment.measure import Conditions
from pytest_sparkperf.experiment.stored import Keeping, StoredGate

NOW = datetime(2026, 11, 30, 16, 5, 34, tzinfo=UTC)
SERVER = Server("http://127.0.0.1:8000", "acme/m-35b", 3, {"version": "0.32.0", "speculative_method": "mtp"})
VARIANT = Variant("qwen36", "vllm", args=FrozenMap({"moe-backend": "marlin"}))
COLD = GpuState("NVIDIA GB10", "580.95.05", temperature_c=41, sm_clock_mhz=500)
AROUND = Surroundings(driver="580.95.05", gpus=(COLD,))
EVIDENCE = Evidence(
    rounds=8,
    figures={"decode_tok_s": Figure(100.0, 0.008)},
    temperature_c=61,
    thermal=FrozenMap({"load_s": 120}),
    rise_c=0.0,
    gpus=(GpuState("NVIDIA GB10", temperature_c=62, sm_clock_mhz=2400),),
)
RESULT = Result(decode_tok_s=100.0, rounds=8)
SPEC = parse_mark({"max_slowdown": 0.1})


def gate(
    folder: Path,
    *,
    record: bool = True,
    machine: Machine | Problem = SPARK,
    rule: Any = "minus_first_event",
    **rest: Any,
) -> StoredGate:
    store = FolderStore(folder)
    keeping = Keeping(store, store=store if record else None, now=lambda: NOW, **rest)
    on = (VARIANT, SERVER, Known(machine, surroundings=AROUND))
    return StoredGate.open(keeping, TEST, SPEC, on, [Prompt("code", "def f(): ...")], rule)


def newest(folder: Path) -> Record:
    file = load_file(FolderStore(folder), baseline_path(SPARK, TEST))
    assert file is not None
    return file.series[0].newest


def test_a_run_is_kept_with_what_the_machine_and_the_user_say(tmp_path: Path) -> None:
    def hook(variant: Variant, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"bios": f"1.2 of {variant.target}", "seen": facts["version"]}

    opened = gate(tmp_path, hook=hook, commit="12345e12")
    said = opened.finished(RESULT, EVIDENCE)

    assert opened.records
    assert said.verdicts == ()
    assert said.notes[0] == f"recorded {TEST} on {SPARK.slug}: 1 of at most 10 records"
    kept = newest(tmp_path)
    assert kept.run.startswith("20261130-160534-")
    assert replace(kept, run="", facts=FrozenMap()) == Record(
        "",
        "2026-11-30T16:05:34Z",
        8,
        EVIDENCE.figures,
        61,
        EVIDENCE.thermal,
        commit="12345e12",
        anchor=True,
    )
    assert dict(kept.facts) == {
        "vllm": "0.32.0",
        "speculator": "mtp",
        "arguments": {"moe-backend": "marlin"},
        "driver": "580.95.05",
        "sm_clock_mhz": 2400,
        "temperature_c": 62,
        "workload": opened.work.workload,
        "bios": "1.2 of qwen36",
        "seen": "0.32.0",
    }


def test_three_kept_runs_judge_the_next_one(tmp_path: Path) -> None:
    for _ in range(3):
        gate(tmp_path).finished(RESULT, EVIDENCE)

    opened = gate(tmp_path, record=False, hook=lambda *_: {"bios": "1.3"})
    conditions = opened.conditions(Conditions(gates=2))
    verdict = Verdict("max_slowdown", "FAIL", 0.5, 0.4, 0.6, 0.9, 0.8)
    said = opened.finished(replace(RESULT, decode_tok_s=50.0, verdicts=(verdict,)), EVIDENCE)

    assert isinstance(opened.basis, Found)
    assert (conditions.gates, conditions.rule, conditions.keep) == (2, "minus_first_event", False)
    assert conditions.standard is not None
    assert [claim.gate for claim in conditions.standard.claims] == ["max_slowdown"]
    assert said.verdicts == (verdict,)
    assert said.notes[:2] == (
        "decode_tok_s: 50.00 tok/s today, 100.0 tok/s in the baseline (mean of 3 records, 2026-11-30)",
        "no recorded fact differs from the baseline",
    )


def test_a_run_that_fails_or_is_broken_is_not_kept(tmp_path: Path) -> None:
    failed = replace(RESULT, verdicts=(Verdict("min_decode", "FAIL", 1, 1, 1, 2, 1),))
    broke = replace(RESULT, verdicts=(Verdict("min_decode", "ERROR", 1, 1, 1, 2, 1, "cut off\nlog"),))

    said = [gate(tmp_path).finished(one, EVIDENCE) for one in (failed, broke)]

    assert [one.verdicts[1].gate for one in said] == ["max_slowdown", "max_slowdown"]
    assert [one.verdicts[1].outcome for one in said] == ["ERROR", "ERROR"]
    assert said[0].notes[0] == (
        f"{TEST} was not recorded: it FAILed min_decode, and what fails does not become the norm by itself: "
        "if the change is meant, remove the old records by sparkperf baseline prune first"
    )
    assert said[1].notes[0] == f"{TEST} was not recorded: it is no valid measurement (cut off)"
    assert list(tmp_path.iterdir()) == []


def test_a_stuck_gpu_is_not_kept(tmp_path: Path) -> None:
    said = gate(tmp_path).finished(RESULT, replace(EVIDENCE, stuck_mhz=799.0))

    assert said.notes[0] == (
        f"{TEST} was not recorded: the hardware is not fit (a GPU stays at 799 MHz under full load)"
    )


def test_what_cannot_be_written_is_an_error_and_loses_no_figure(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")

    said = gate(blocker / "baselines").finished(RESULT, EVIDENCE)

    unwritten, unjudged = said.verdicts
    assert said.decode_tok_s == 100
    assert (unwritten.gate, unwritten.outcome) == ("--sparkperf-record", "ERROR")
    assert unwritten.reason == (
        f"the baseline {blocker / 'baselines' / baseline_path(SPARK, TEST)} cannot be written: not a "
        "directory; nothing was changed; make room and the folder writable, or name another by "
        "--sparkperf-baseline-dir"
    )
    assert (unjudged.gate, unjudged.outcome) == ("max_slowdown", "ERROR")


@pytest.mark.parametrize(
    "changes",
    [{"machine": unidentified("x")}, {"rule": broken("a first request failed twice (x): y")}],
    ids=["no machine", "no answer"],
)
def test_without_a_machine_or_an_answer_nothing_is_measured_or_kept(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    opened = gate(tmp_path, **changes)

    assert not opened.records
    assert not opened.measures
    (verdict,) = opened.unmeasured().verdicts
    assert (verdict.gate, verdict.outcome) == ("max_slowdown", "ERROR")


def test_a_missing_baseline_may_be_excused(tmp_path: Path) -> None:
    (verdict,) = gate(tmp_path, record=False, missing="skip").unmeasured().verdicts

    assert (verdict.outcome, verdict.excused) == ("INCONCLUSIVE", True)
