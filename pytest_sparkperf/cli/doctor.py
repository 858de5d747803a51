"""``sparkperf doctor``: is this machine fit to be measured on? One page, for people and for CI."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_sparkperf.adapters.bundle import RecordingRun, ReplayedRun
from pytest_sparkperf.adapters.docker import Docker
from pytest_sparkperf.adapters.leftovers import find_leftovers
from pytest_sparkperf.adapters.lock import lock_folder, present_holder
from pytest_sparkperf.adapters.machine import HostReading, read_host
from pytest_sparkperf.adapters.preflight import Preflight
from pytest_sparkperf.core.errors import SparkPerfError
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.memory import gib, start_floor
from pytest_sparkperf.core.preflight import Finding, MachineState, judge_machine

_UNKNOWN = "unknown"


def main(argv: Sequence[str]) -> int:
    """Print the page and return the exit status: 0 fit, 1 not fit, 2 usage."""
    options = _parser().parse_args(argv)
    recording = RecordingRun()
    root = Path("/")
    try:
        run = recording if options.source is None else ReplayedRun.read(options.source)
        if options.source is not None:
            root = options.source / "root"
        state = Preflight(run, root).read()
        host = read_host(root, run)
        if options.bundle is not None:
            recording.write(options.bundle)
        here = _judge_here() if options.source is None else ()
    except SparkPerfError as error:
        print(f"sparkperf doctor: {error}", file=sys.stderr)
        return 2
    findings = (*judge_machine(state), *here)
    if options.json:
        print(json.dumps(_facts(state, host, findings), indent=2))
    else:
        print("\n".join(_lines(state, host, findings)))
    return 1 if any(one.level == "refuse" for one in findings) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkperf doctor",
        description="Say whether this machine is fit to be measured on, and what is wrong with it.",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--bundle", type=Path, metavar="DIR", help="write what was read, for a bug report")
    group.add_argument(
        "--from", type=Path, metavar="DIR", dest="source", help="judge what --bundle wrote elsewhere"
    )
    parser.add_argument("--json", action="store_true", help="print it as one JSON object")
    return parser


def _judge_here() -> tuple[Finding, ...]:
    return tuple(_findings_here())


def _findings_here() -> Iterator[Finding]:
    """Yield what only this machine itself can tell: who measures now, and what earlier runs left."""
    holder = present_holder(lock_folder())
    if holder is not None:
        yield Finding("refuse", "lock", f"a run of {holder} measures on this machine now; wait for its end")
    left = [one.name for one in find_leftovers()]
    if shutil.which("docker"):
        left += [f"container {one.id[:12]}" for one in Docker.find("doctor").leftovers()]
    if left:
        text = f"earlier runs left {', '.join(left)}; `sparkperf stop` ends them"
        yield Finding("refuse", "leftovers", text)


def _facts(state: MachineState, host: HostReading, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "fit": not any(one.level == "refuse" for one in findings),
        "findings": [asdict(one) for one in findings],
        "machine": asdict(state),
        "host": asdict(host),
    }


def _lines(state: MachineState, host: HostReading, findings: Sequence[Finding]) -> Iterator[str]:
    cores = f"{host.cores or '?'} cores"
    yield f"machine   {host.cpu or _UNKNOWN}, {cores}, {host.architecture}, {host.os or _UNKNOWN}"
    yield from (f"gpu       {_gpu(gpu)}" for gpu in state.gpus)
    if not state.gpus:
        yield f"gpu       {state.gpu_problem or 'none that nvidia-smi shows'}"
    yield f"memory    {_memory(state)}"
    yield f"load      {_UNKNOWN if state.load_1min is None else state.load_1min} on {os.cpu_count()} CPUs"
    for app in state.apps:
        yield f"process   {app} on the GPU"
    for one in findings:
        yield f"{'NOT FIT' if one.level == 'refuse' else 'warning':<9} {one.text}"
    if not any(one.level == "refuse" for one in findings):
        yield "fit to be measured on"


def _gpu(gpu: GpuState) -> str:
    figures = {
        "C": gpu.temperature_c,
        "MHz": gpu.sm_clock_mhz,
        "W": gpu.power_draw_w,
        "W limit": gpu.power_limit_w,
    }
    shown = [f"{value:g} {unit}" for unit, value in figures.items() if value is not None]
    busy = [] if gpu.utilization is None else [f"{gpu.utilization:.0%} busy"]
    driver = [] if gpu.driver is None else [f"driver {gpu.driver}"]
    return ", ".join([gpu.name or _UNKNOWN, *driver, *shown, *busy])


def _memory(state: MachineState) -> str:
    found = state.memory
    if found is None:
        return _UNKNOWN
    kind = "shared by CPU and GPU, " if state.is_unified else ""
    floor = start_floor(found.total, unified=state.is_unified)
    return (
        f"{kind}{gib(found.available)} of {gib(found.total)} available ({gib(found.free)} free, "
        f"{gib(found.cached)} page cache, {gib(found.swap_used)} of swap in use); a start is ended below "
        f"{gib(floor)}"
    )
