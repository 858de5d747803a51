"""Reads what a machine is from /proc and /sys, which show the host's hardware also inside a container.

Of a server elsewhere the same files are read there, by a command such as ssh.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_sparkperf.adapters.command import Run, run_command
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.hardware import cpu_name

_NVPMODEL_TIMEOUT_S = 5.0
# A first connection over ssh may take its time.
_ELSEWHERE_TIMEOUT_S = 20.0
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")
_JETSONS = ("Thor", "Orin", "Xavier")


@dataclass(frozen=True, slots=True)
class HostReading:
    """What the files say; None where one is missing or says nothing.

    ``cores`` counts the CPUs that are fitted, also those that a power mode has switched off. ``jetson`` is
    the name of a Jetson's GPU, for those whose system has no nvidia-smi.
    """

    cpu: str | None
    cores: int | None
    architecture: str | None
    memory_kib: int | None
    os: str | None
    kernel: str | None
    cpu_governor: str | None
    power_mode: str | None
    container: bool
    jetson: str | None


def read_host(
    root: Path = Path("/"),
    run: Run = run_command,
    *,
    architecture: str | None = None,
    kernel: str | None = None,
) -> HostReading:
    """Read the machine below ``root``; architecture and kernel are the running system's unless given."""
    return _reading(
        lambda name: _text(root / name),
        run,
        architecture=platform.machine() if architecture is None else architecture,
        kernel=platform.release() if kernel is None else kernel,
        container=any((root / mark).exists() for mark in _CONTAINER_MARKS),
    )


def read_host_elsewhere(run: Run) -> HostReading:
    """Read the machine on which ``run`` runs its commands.

    Raises ServerError where it cannot run any there.
    """
    timeout_s = _ELSEWHERE_TIMEOUT_S
    system = run(("uname", "-mr"), timeout_s)
    words = system.text.split()
    if system.status != 0 or len(words) != 2:
        raise ServerError(
            f"the machine of the server cannot be read by its target's probe: {system.complaint}; see that "
            "the probe runs uname -mr there and asks for no password, such as probe: [ssh, -o, "
            "BatchMode=yes, spark2]"
        )
    kernel, architecture = words
    return _reading(
        lambda name: run(("cat", f"/{name}"), timeout_s).text.replace("\0", ""),
        run,
        architecture=architecture,
        kernel=kernel,
        container=any(run(("ls", f"/{mark}"), timeout_s).status == 0 for mark in _CONTAINER_MARKS),
    )


def _reading(
    text: Callable[[str], str], run: Run, *, architecture: str, kernel: str, container: bool
) -> HostReading:
    cpuinfo = text("proc/cpuinfo")
    jetson = _jetson(text("proc/device-tree/model"))
    return HostReading(
        cpu=cpu_name(cpuinfo),
        cores=_listed(text("sys/devices/system/cpu/present")) or _counted(cpuinfo),
        architecture=architecture,
        memory_kib=_first_number(r"^MemTotal:\s+(\d+) kB", text("proc/meminfo")),
        os=_os_name(text("etc/os-release")),
        kernel=kernel,
        cpu_governor=text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        power_mode=_power_mode(run) if jetson else None,
        container=container,
        jetson=jetson,
    )


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace").replace("\0", "")
    except OSError:
        return ""


def _first_number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else None


def _listed(ranges: str) -> int | None:
    """Count the CPUs of a list such as ``0-9,12``."""
    count = 0
    for part in ranges.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            return None
        count += int(match[2] or match[1]) - int(match[1]) + 1
    return count


def _counted(cpuinfo: str) -> int | None:
    return len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)) or None


def _os_name(release: str) -> str | None:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', release, re.MULTILINE)
    return match[1].strip() if match else None


def _jetson(model: str) -> str | None:
    if "Jetson" not in model:
        return None
    return next((name for name in _JETSONS if name in model), None)


def _power_mode(run: Run) -> str | None:
    match = re.search(r"NV Power Mode: *(\S+)", run(("nvpmodel", "-q"), _NVPMODEL_TIMEOUT_S).text)
    return match[1] if match else None
