"""Hostile servers under a supervisor, started here or below a process in the place of pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pytest_sparkperf.adapters.process import SupervisedProcess
from pytest_sparkperf.adapters.proctable import ProcessEntry, read_process

ROOT = Path(__file__).parents[2]
SERVERS = Path(__file__).parents[1] / "data" / "servers"
HOSTILE = str(SERVERS / "hostile.py")
WAIT_S = 30.0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def entry(pid: int) -> ProcessEntry:
    found = read_process(pid)
    assert found is not None
    return found


def gone(entries: list[ProcessEntry]) -> bool:
    return all((now := read_process(e.pid)) is None or now.start != e.start for e in entries)


def wait_until_gone(entries: list[ProcessEntry]) -> None:
    wait_for(lambda: gone(entries), f"the end of {entries}")


class Hostile:
    """A started hostile server: its main process and a daemon beyond the reach of a process group."""

    def __init__(self, process: SupervisedProcess, pids_file: Path) -> None:
        wait_for(lambda: len(noted(pids_file)) == 2, "the daemon's start")
        self.process = process
        self.main, self.daemon = map(entry, noted(pids_file))
        # What makes a group signal, or one to the session, miss it:
        assert self.daemon.pgid != self.main.pgid
        assert self.daemon.session != self.main.session
        assert self.daemon.ppid == process.supervisor_pid


def start_hostile(start_process: Callable[..., SupervisedProcess], folder: Path, *way: str) -> Hostile:
    pids_file = folder / "pids"
    return Hostile(start_process(HOSTILE, str(pids_file), *way), pids_file)


class Parent:
    """A process in the place of pytest, with a hostile server below it."""

    def __init__(self, folder: Path, records: Path, way: str) -> None:
        pids_file = folder / "parent_pids"
        server = [sys.executable, HOSTILE, str(pids_file)]
        self.popen = subprocess.Popen(
            [
                sys.executable,
                str(SERVERS / "parent.py"),
                str(folder / "log"),
                str(records),
                way,
                "--",
                *server,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.stdin, self.stdout = self.popen.stdin, self.popen.stdout
        main, supervisor, self.child = map(int, self.stdout.readline().split())
        wait_for(lambda: len(noted(pids_file)) == 2, "the daemon's start")
        self.server = [entry(pid) for pid in noted(pids_file)]
        assert self.server[0].pid == main
        self.supervisor = entry(supervisor)

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        if self.child and read_process(self.child):
            os.kill(self.child, signal.SIGKILL)
        self.stdin.close()
        self.stdout.close()
