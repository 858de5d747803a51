"""Whether a machine is fit to be measured on: what was read of it, judged in sentences."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.memory import GIB, MemInfo, gib
from pytest_sparkperf.core.variant import Variant

Level = Literal["refuse", "warn"]

# vLLM's own default, which it takes of all the memory that the GPU shows.
DEFAULT_UTILIZATION = 0.92
# Idle GPUs show a per cent or two for the desktop.
_BUSY = 0.10
_CPU_SHARE = 0.5
_SWAP = 1 * GIB
_ENGINE = "VLLM::"
_NO_NAME = "an unnamed process"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: ``refuse`` makes figures wrong, ``warn`` may."""

    level: Level
    what: str
    text: str


@dataclass(frozen=True, slots=True)
class GpuApp:
    """A process that computes on a GPU; its memory (bytes) is None where the driver does not tell."""

    pid: int
    name: str
    memory: int | None = None

    def __str__(self) -> str:
        held = "" if self.memory is None else f", {gib(self.memory)}"
        return f"pid {self.pid} ({self.name or _NO_NAME}{held})"


@dataclass(frozen=True, slots=True)
class MachineState:
    """What was read of a machine; None or empty where it does not tell.

    ``apps`` are processes that compute on a GPU as its driver lists them, ``engines`` those of vLLM by what
    they call themselves.
    """

    memory: MemInfo | None = None
    gpus: tuple[GpuState, ...] = ()
    gpu_problem: str | None = None
    apps: tuple[GpuApp, ...] = ()
    engines: tuple[GpuApp, ...] = ()
    load_1min: float | None = None
    cpus: int | None = None

    @property
    def is_unified(self) -> bool:
        """Whether CPU and GPU share memory: the GPU is there and tells none of its own."""
        return bool(self.gpus) and all(gpu.memory_mib is None for gpu in self.gpus)


def parse_compute_apps(text: str) -> tuple[GpuApp, ...]:
    """Read ``nvidia-smi --query-compute-apps=pid,process_name,used_gpu_memory --format=csv``."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    found = []
    for row in rows:
        if len(row) >= 3 and row[0].strip().isdigit():
            figure = row[-1].partition(" ")[0]
            memory = int(figure) * (1 << 20) if figure.isdigit() else None
            found.append(GpuApp(int(row[0]), ", ".join(row[1:-1]).strip(), memory))
    return tuple(found)


def memory_need(variant: Variant, state: MachineState) -> int | None:
    """Return how much memory (bytes) vLLM will want to find free; None where that is not known."""
    if not state.is_unified or state.memory is None or variant.launch not in ("vllm", "docker"):
        return None
    share = variant.args.get("gpu-memory-utilization", DEFAULT_UTILIZATION)
    return int(float(share) * state.memory.total)


def is_engine(comm: str, cmdline: str) -> bool:
    """Say whether a process is vLLM's: its engines rename themselves, cut at 15 letters in ``comm``."""
    return _ENGINE in comm or cmdline.startswith(_ENGINE)


def judge_machine(
    state: MachineState, *, need: int | None = None, own: Collection[int] | None = ()
) -> tuple[Finding, ...]:
    """Return what is wrong with the machine; ``own`` are processes of ours, ``need`` bytes to be free.

    With ``own`` None servers of ours run whose processes are not known, so that nobody's can be told apart.
    """
    busy = own is None or bool(own)
    return (
        *_judge_gpus(state, busy=busy),
        *(() if own is None else _judge_apps(state, own)),
        *_judge_memory(state.memory, need),
        *_judge_cpu(state, busy=busy),
    )


def _judge_gpus(state: MachineState, *, busy: bool) -> Iterator[Finding]:
    if state.gpu_problem is not None:
        yield Finding(
            "refuse", "gpu", f"{state.gpu_problem.rstrip('.')}; restart the machine, or repair its driver"
        )
    for gpu in state.gpus:
        name = gpu.name or "the GPU"
        if gpu.throttled:
            yield Finding(
                "refuse",
                "throttling",
                f"{name} holds its clocks down ({', '.join(gpu.throttled)}); let it cool down and look at "
                "its power supply",
            )
        if not busy and gpu.utilization is not None and gpu.utilization >= _BUSY:
            yield Finding(
                "refuse",
                "gpu_load",
                f"{name} is {gpu.utilization:.0%} busy although nothing of this run uses it; end what does "
                "(see nvidia-smi)",
            )


def _judge_apps(state: MachineState, own: Collection[int]) -> Iterator[Finding]:
    apps = [app for app in state.apps if app.pid not in own]
    listed = {*own, *(app.pid for app in apps)}
    engines = [one for one in state.engines if one.pid not in listed]
    if engines:
        # Without a GPU they share the CPUs with ours, which a test of a small model may well live with.
        yield Finding(
            "refuse" if state.gpus else "warn",
            "engines",
            f"other vLLM engines run: {', '.join(map(str, engines))}; end them, or measure when they are "
            "done (what earlier runs of sparkperf left, `sparkperf stop` ends)",
        )
    if apps:
        yield Finding(
            "refuse",
            "gpu_processes",
            f"other processes use the GPU: {', '.join(map(str, apps))}; end them, or measure when they are "
            "done (what earlier runs of sparkperf left, `sparkperf stop` ends)",
        )


def _judge_memory(memory: MemInfo | None, need: int | None) -> Iterator[Finding]:
    if memory is None:
        return
    if need is not None and memory.available < need:
        yield Finding(
            "refuse",
            "memory",
            f"the server wants {gib(need)} of memory, and of {gib(memory.total)} only "
            f"{gib(memory.available)} are available; end what holds the rest, or lower "
            "gpu-memory-utilization",
        )
    elif need is not None and memory.free < need:
        yield Finding(
            "warn",
            "page_cache",
            f"the server wants {gib(need)} of memory; {gib(memory.available)} are available, but "
            f"{gib(memory.cached)} of them are page cache, which the driver may count as taken; if the start "
            "fails, drop it as root: sync; echo 3 > /proc/sys/vm/drop_caches",
        )
    if memory.swap_used >= _SWAP:
        yield Finding(
            "warn",
            "swap",
            f"{gib(memory.swap_used)} of swap are in use, so that parts of a server may be read from disk; "
            "swapoff -a and swapon -a empty it",
        )


def _judge_cpu(state: MachineState, *, busy: bool) -> Iterator[Finding]:
    load, cpus = state.load_1min, state.cpus
    if not busy and load is not None and cpus is not None and load > _CPU_SHARE * cpus:
        yield Finding(
            "warn",
            "cpu_load",
            f"the CPUs are busy: load {load:.1f} on {cpus} of them; time to first token suffers from that",
        )


def refusal(findings: Sequence[Finding]) -> str | None:
    """Return the sentence that refuses to measure; None where nothing is that wrong."""
    reasons = [one.text for one in findings if one.level == "refuse"]
    return "this machine is not fit to be measured on: " + "; also, ".join(reasons) + "." if reasons else None
