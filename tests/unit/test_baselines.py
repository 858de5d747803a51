from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from baseline_samples import SPARK, TEST, WORK, file_with, record_at

from pytest_sparkperf.adapters.baseline_text import baseline_text
from pytest_sparkperf.adapters.machine import HostReading
from pytest_sparkperf.adapters.nvidia_smi import GpuReading
from pytest_sparkperf.adapters.store import FolderStore, baseline_path, load_file
from pytest_sparkperf.core.baseline import RunState
from pytest_sparkperf.core.fingerprint import Surroundings
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE, Machine, declared_machine
from pytest_sparkperf.core.lookup import Found, GateIdentity, Problem
from pytest_sparkperf.core.targets import Hardware
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.experiment.baselines import (
    Recorded,
    identify,
    load_baseline,
    open_files,
    record,
    surroundings_of,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PATH = baseline_path(SPARK, TEST)
GATE = GateIdentity(TEST, SPARK, WORK, ("decode_tok_s",))
HOST = HostReading(
    "Cortex-A725 + Cortex-X925", 20, "aarch64", 127_600_000, "Ubuntu", "6.17", "performance", None,
    container=False, jetson=None,
)  # fmt: skip
GB10 = GpuState("NVIDIA GB10", "580.95.05", capability="12.1", temperature_c=61)
GPUS = GpuReading((GB10,), cuda="13.0")
STARTED = Variant("qwen36", "vllm")
ATTACHED = Variant("rented", "attach")
SOUND = RunState(rounds=12, steady=True, simulated=False, rise_c=0.4)


def where(variant: Variant, **changes: Any) -> Machine | Problem:
    seen: dict[str, Any] = {"simulated": False, "on_cpu": False, "host": HOST, "gpus": GPUS}
    return identify(variant, **seen | changes)


def keep(folder: Path, data: bytes, path: str = PATH) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)


def problem(folder: Path, gate: GateIdentity = GATE) -> Problem:
    found = load_baseline(FolderStore(folder), gate, NOW)
    assert isinstance(found, Problem)
    return found


def test_a_started_server_runs_on_this_machine() -> None:
    assert where(STARTED) == SPARK


def test_a_simulated_server_has_a_machine_of_its_own_wherever_it_runs() -> None:
    assert where(STARTED, simulated=True) == SIMULATED_MACHINE
    assert where(ATTACHED, simulated=True) == SIMULATED_MACHINE


def test_an_attached_server_runs_on_the_machine_that_its_target_describes() -> None:
    hardware = Hardware("NVIDIA GB10", 2, 128)

    assert where(replace(ATTACHED, hardware=hardware)) == declared_machine(hardware)


@pytest.mark.parametrize(
    "variant", [ATTACHED, Variant("rented", "command", url="http://10.0.0.5:8000")], ids=["attach", "command"]
)
def test_a_server_elsewhere_is_never_taken_to_run_on_this_machine(variant: Variant) -> None:
    assert where(variant) == Problem(
        "unidentified",
        (
            "no baseline can be chosen: the server of target 'rented' may run on another machine, and is "
            "not taken to run on this one; describe its machine in sparkperf.yaml, such as hardware: {gpu: "
            "NVIDIA GB10, count: 1, memory_gib: 128}, or let it be read there by a command, such as probe: "
            "[ssh, -o, BatchMode=yes, spark2]"
        ),
    )


def test_an_attached_server_runs_on_the_machine_that_its_probe_reaches() -> None:
    probed = replace(ATTACHED, probe=("ssh", "spark2"))

    assert where(probed) == SPARK
    assert where(probed, gpus=GpuReading(problem="x")) == Problem(
        "unidentified",
        "no baseline can be chosen: the server runs on a GPU that cannot be seen from here (x); make "
        "nvidia-smi work where the probe runs it, or describe the machine by hardware: in sparkperf.yaml",
    )


def test_a_command_that_serves_on_loopback_serves_on_this_machine() -> None:
    assert where(Variant("ray", "command")) == SPARK
    assert where(Variant("ray", "command", url="http://127.0.0.1:8000")) == SPARK


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        (
            GpuReading(absent=True, problem="there is no program 'nvidia-smi' on PATH"),
            "there is no program 'nvidia-smi' on PATH",
        ),
        (GpuReading(problem="nvidia-smi does not show the GPUs: x"), "nvidia-smi does not show the GPUs: x"),
        (GpuReading(), "nvidia-smi shows no GPU"),
    ],
)
def test_a_gpu_that_cannot_be_seen_is_never_taken_for_none(gpus: GpuReading, reason: str) -> None:
    assert where(STARTED, gpus=gpus) == Problem(
        "unidentified",
        f"no baseline can be chosen: the server runs on a GPU that cannot be seen from here ({reason}); make "
        "nvidia-smi work where pytest runs, or describe the machine by hardware: in sparkperf.yaml",
    )


def test_a_jetson_without_nvidia_smi_and_a_server_on_the_cpu_are_known() -> None:
    jetson = where(STARTED, gpus=GpuReading(absent=True), host=replace(HOST, jetson="Thor"))
    with_smi = where(STARTED, gpus=GpuReading((GpuState("NVIDIA Thor"),)))
    cpu = where(STARTED, on_cpu=True)

    assert isinstance(jetson, Machine)
    assert jetson == with_smi
    assert isinstance(cpu, Machine)
    assert cpu.gpus == ()


def test_surroundings_are_this_machines_only_where_it_serves() -> None:
    assert surroundings_of(SPARK, HOST, GPUS) == Surroundings(
        "Ubuntu", "6.17", "performance", None, False, "580.95.05", "13.0", (GB10,)
    )
    assert surroundings_of(declared_machine(Hardware("x")), HOST, GPUS) == Surroundings()


def test_recording_three_runs_gives_a_baseline(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    said = [record(store, GATE, record_at(day, 100.0 + day), SOUND) for day in (1, 2, 3)]

    assert said[0] == Recorded(
        refused=False,
        lines=(
            (
                "recorded tests/test_speed.py::test_decode[k3] on gb10-1x-aarch64-20c-128g-8684: 1 of at "
                "most 10 records"
            ),
            "  2 more until gates can be judged against them",
        ),
    )
    assert said[2].lines[1:] == (
        "  decode_tok_s 103.0 tok/s; smallest margin: max_slowdown=0.053 passes 95 % of unchanged runs",
    )
    found = load_baseline(open_files(tmp_path, None, tmp_path), GATE, NOW)
    assert isinstance(found, Found)
    assert len(found.baselines["decode_tok_s"].thetas) == 3


def test_an_unfit_run_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    said = record(FolderStore(tmp_path), GATE, record_at(1), replace(SOUND, rounds=6, simulated=True))

    assert said == Recorded(
        refused=True,
        lines=(
            (
                "tests/test_speed.py::test_decode[k3] was not recorded: it has 6 rounds, a record needs 8: "
                "raise budget_s; it is simulated and would stand among records of real "
                "hardware"
            ),
        ),
    )
    assert list(tmp_path.iterdir()) == []


def test_nothing_recorded_is_missing_here_or_foreign(tmp_path: Path) -> None:
    assert problem(tmp_path).kind == "missing"
    elsewhere = replace(GATE, machine=SIMULATED_MACHINE)
    keep(tmp_path, baseline_text(file_with(record_at(1))))

    assert problem(tmp_path, elsewhere) == Problem(
        "foreign",
        "there is no baseline of 'tests/test_speed.py::test_decode[k3]' for this machine (simulator), only "
        "for gb10-1x-aarch64-20c-128g-8684, and another machine's figures are never compared; record on "
        "this one: pytest --sparkperf --sparkperf-record",
    )


def test_a_file_copied_to_another_machines_folder_is_a_mismatch(tmp_path: Path) -> None:
    keep(tmp_path, baseline_text(file_with(record_at(1))), baseline_path(SIMULATED_MACHINE, TEST))

    assert problem(tmp_path, replace(GATE, machine=SIMULATED_MACHINE)).kind == "mismatch"


def test_files_that_cannot_be_used_are_problems_with_file_and_line(tmp_path: Path) -> None:
    keep(tmp_path, b"schema_version: 9\n")
    assert problem(tmp_path) == Problem(
        "newer_schema",
        "the baseline is newer than this version of pytest-sparkperf:\n"
        f"{tmp_path / PATH}:1: schema_version: 9 is newer than 1, the newest that this version of "
        "pytest-sparkperf reads; update pytest-sparkperf here, or record again with this one",
    )
    keep(tmp_path, b"- 1\n")
    assert problem(tmp_path) == Problem(
        "corrupt",
        "the baseline cannot be used:\n"
        f"{tmp_path / PATH}:1: [1] is not a baseline; remove the file, or take it from git again",
    )
    (tmp_path / PATH).unlink()
    (tmp_path / PATH).mkdir()
    assert problem(tmp_path).kind == "corrupt"


def test_a_record_survives_the_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    record(store, GATE, record_at(1, 104.6, facts={"vllm": "0.24.0"}), SOUND)

    file = load_file(store, PATH)

    assert file == file_with(record_at(1, 104.6, facts={"vllm": "0.24.0"}))
