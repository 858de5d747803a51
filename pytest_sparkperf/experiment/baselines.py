"""Baselines of a run: on which machine it is, what its gates are judged against, what may be recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from pytest_sparkperf.adapters.baseline_text import NewerBaselineError
from pytest_sparkperf.adapters.gitref import GitFiles
from pytest_sparkperf.adapters.machine import HostReading
from pytest_sparkperf.adapters.nvidia_smi import GpuReading
from pytest_sparkperf.adapters.store import Files, FolderStore, baseline_path, load_file, machines_with
from pytest_sparkperf.core import lookup
from pytest_sparkperf.core.baseline import (
    BaselineFile,
    Record,
    RunState,
    Work,
    append_record,
    refusals,
)
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.fingerprint import Surroundings
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE, Machine, declared_machine, seen_machine
from pytest_sparkperf.core.lookup import MAX_AGE_DAYS, Found, GateIdentity, Problem
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.core.vllm_options import LOOPBACK


@dataclass(frozen=True, slots=True)
class Recorded:
    """What recording one run came to: the lines to show; ``refused`` where nothing was written."""

    refused: bool
    lines: tuple[str, ...]


def identify(
    variant: Variant, *, simulated: bool, on_cpu: bool, host: HostReading, gpus: GpuReading
) -> Machine | Problem:
    """Say on which machine a server runs: this one only for a server that we started on it.

    ``host`` and ``gpus`` are of the machine that the target's probe reaches, where it has one. ``on_cpu``:
    the server says that it runs without a GPU. A machine that cannot be told is a Problem.
    """
    if simulated:
        return SIMULATED_MACHINE
    if variant.hardware is not None:
        return declared_machine(variant.hardware)
    if not variant.probe and _may_be_elsewhere(variant):
        return lookup.unidentified(
            f"the server of target {variant.target!r} may run on another machine, and is not taken to run on "
            "this one; describe its machine in sparkperf.yaml, such as hardware: {gpu: NVIDIA GB10, count: "
            "1, memory_gib: 128}, or let it be read there by a command, such as probe: [ssh, -o, "
            "BatchMode=yes, spark2]"
        )
    states = gpus.gpus
    if not states and not on_cpu:
        if host.jetson is None:
            reason = gpus.problem or "nvidia-smi shows no GPU"
            where = "where the probe runs it" if variant.probe else "where pytest runs"
            return lookup.unidentified(
                f"the server runs on a GPU that cannot be seen from here ({reason}); make nvidia-smi work "
                f"{where}, or describe the machine by hardware: in sparkperf.yaml"
            )
        states = (GpuState(host.jetson),)
    return seen_machine(
        () if on_cpu else states,
        cpu=host.cpu,
        cores=host.cores,
        architecture=host.architecture,
        memory_kib=host.memory_kib,
        mig_profiles=gpus.mig_profiles,
    )


def _may_be_elsewhere(variant: Variant) -> bool:
    """Tell whether we did not start the server here: a loopback address may be the end of a tunnel, too."""
    if variant.launch == "command":
        return variant.url is not None and urlsplit(variant.url).hostname not in LOOPBACK
    return variant.launch == "attach"


def surroundings_of(machine: Machine, host: HostReading, gpus: GpuReading) -> Surroundings:
    """Return what this machine shows; nothing where the server's machine is another one.

    Of GPUs only where the server runs on them.
    """
    if machine.source == "declared":
        return Surroundings()
    return Surroundings(
        os=host.os,
        kernel=host.kernel,
        cpu_governor=host.cpu_governor,
        power_mode=host.power_mode,
        container=host.container,
        driver=gpus.driver if machine.gpus else None,
        cuda=gpus.cuda if machine.gpus else None,
        gpus=gpus.gpus if machine.gpus else (),
    )


def open_files(folder: Path, ref: str | None, root: Path) -> Files:
    """Open the baselines of the working tree or, with a ref, those of a commit; raises ConfigError."""
    return FolderStore(folder) if ref is None else GitFiles(ref, folder, root)


def load_baseline(
    files: Files, gate: GateIdentity, now: datetime, max_age_days: int = MAX_AGE_DAYS
) -> Found | Problem:
    """Load what a gate is judged against, or the reason why there is nothing; ``now`` in UTC.

    Raises ConfigError only where git cannot list its files. What to do about a Problem says
    :func:`pytest_sparkperf.core.lookup.action`.
    """
    path = baseline_path(gate.machine, gate.test)
    try:
        file = load_file(files, path)
    except NewerBaselineError as error:
        return lookup.newer(str(error))
    except ConfigError as error:
        return lookup.corrupt(str(error))
    if file is None:
        return lookup.missing(gate, machines_with(files, gate.test))
    return lookup.choose(file, gate, now, max_age_days)


def record(store: FolderStore, gate: GateIdentity, run: Record, state: RunState) -> Recorded:
    """Add a run to its baseline, unless it is not fit to be one.

    Raises ConfigError where the file cannot be used or written.
    """
    why_not = refusals(state, gate.machine)
    if why_not:
        return Recorded(True, (f"{gate.test} was not recorded: {'; '.join(why_not)}",))
    empty = BaselineFile(gate.test, gate.machine)
    work: Work = gate.work
    after = store.update(
        baseline_path(gate.machine, gate.test),
        lambda before: append_record(before, empty, work, run),
    )
    return Recorded(False, tuple(lookup.recorded_lines(after, work, gate.metrics)))
