"""Reads a machine before it is measured on, and refuses one that is not fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_sparkperf.adapters.checkpoint import find_checkpoint, hub_cache, read_faults
from pytest_sparkperf.adapters.command import Run, run_command
from pytest_sparkperf.adapters.launch import in_ci
from pytest_sparkperf.adapters.meminfo import MemoryReader
from pytest_sparkperf.adapters.nvidia_smi import NvidiaSmi
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.preflight import (
    GpuApp,
    MachineState,
    is_engine,
    judge_machine,
    memory_need,
    parse_compute_apps,
    refusal,
)
from pytest_sparkperf.core.variant import Variant

_APPS = ("--query-compute-apps=pid,process_name,used_gpu_memory", "--format=csv")
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Preflight:
    """Reads and judges this machine; ``run`` asks its programs, ``root`` is where its files are."""

    run: Run = run_command
    root: Path = Path("/")

    def read(self) -> MachineState:
        """Read the machine; takes well under a second where nvidia-smi answers."""
        reading = NvidiaSmi(self.run).read()
        apps = () if reading.absent else self.apps()
        return MachineState(
            memory=MemoryReader(self.root).read(),
            gpus=reading.gpus,
            gpu_problem=None if reading.absent else reading.problem,
            apps=apps,
            engines=tuple(self._engines()),
            load_1min=self._load(),
            cpus=os.cpu_count(),
        )

    def check(
        self, variant: Variant, *, own: Collection[int] | None, progress: Callable[[str], None]
    ) -> MachineState:
        """Refuse an unfit machine or an incomplete model with a ServerError; tell what may be wrong."""
        state = self.read()
        findings = judge_machine(state, need=memory_need(variant, state), own=own)
        for one in findings:
            if one.level == "warn":
                progress(one.text)
        text = refusal(findings)
        if text is not None:
            raise ServerError(text)
        check_model(variant)
        return state

    def apps(self) -> tuple[GpuApp, ...]:
        """Return the processes that compute on a GPU; none where they cannot be read."""
        answer = self.run(("nvidia-smi", *_APPS), _TIMEOUT_S)
        return parse_compute_apps(answer.text) if answer.status == 0 else ()

    def _engines(self) -> Iterator[GpuApp]:
        """Yield processes that call themselves vLLM's; nobody is ended for a name."""
        for path in (self.root / "proc").glob("[1-9]*"):
            try:
                comm = (path / "comm").read_text("utf-8", "replace").strip()
                cmdline = (path / "cmdline").read_text("utf-8", "replace").replace("\0", " ").strip()
            except OSError:
                continue
            if is_engine(comm, cmdline):
                yield GpuApp(int(path.name), comm)

    def _load(self) -> float | None:
        try:
            return float((self.root / "proc/loadavg").read_text("ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return None


def check_model(variant: Variant) -> None:
    """Refuse with a ServerError a model whose files are not all there, or not there in CI."""
    if variant.model is None or variant.launch not in ("vllm", "docker", "recipe"):
        return
    environ = {**os.environ, **variant.env}
    folder = find_checkpoint(variant.model, environ)
    if folder is None:
        if in_ci() and not Path(variant.model).is_absolute():
            raise ServerError(
                f"model {variant.model!r} is not on this machine ({str(hub_cache(environ))!r}), and with CI "
                f"set nothing is downloaded; run `hf download {variant.model}` on the runner beforehand."
            )
        return
    faults = read_faults(folder)
    if faults:
        raise ServerError(
            f"model {variant.model!r} is not whole: {'; '.join(faults)} in {str(folder)!r}; "
            "download it again."
        )
