"""Ends what earlier runs of this user left on the machine: processes and containers, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sparkperf.adapters.docker import Docker
from pytest_sparkperf.adapters.leftovers import find_leftovers


@dataclass(slots=True)
class Cleaned:
    """What was found: texts of what was ended, and of what would not go."""

    ended: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def end_leftovers(
    *,
    folder: Path | None = None,
    docker_path: str | None = None,
    grace_s: float = 10.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Cleaned:
    """End the servers whose supervisor is dead and the containers whose run is.

    Processes are ours by start time, user and nonce, containers by user, owner and nonce; a name decides
    nothing. ``docker_path`` replaces PATH in the search for docker.
    """
    found = Cleaned()
    for leftover in find_leftovers(folder):
        pids = [entry.pid for entry in leftover.processes()]
        what = f"{leftover.name} ({_pids(pids)})"
        progress(f"ending {what}, which an earlier run left")
        ended = leftover.end(grace_s)
        if ended:
            left = ", ".join([*(f"pid {pid}" for pid in ended.pids), *map(repr, ended.failed)])
            found.left.append(f"{leftover.name}: {left}")
        else:
            found.ended.append(what)
    _end_containers(found, docker_path, grace_s, progress)
    return found


def _end_containers(
    found: Cleaned, docker_path: str | None, grace_s: float, progress: Callable[[str], None]
) -> None:
    program = shutil.which("docker", path=docker_path)
    if program is None:
        return
    docker = Docker(program)
    for container in docker.leftovers():
        what = f"container {container.id[:12]}"
        progress(f"ending {what}, which an earlier run left")
        (found.ended if docker.end(container, grace_s) else found.left).append(what)


def _pids(pids: list[int]) -> str:
    if not pids:
        return "its processes are gone"
    return f"pid{'s' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
