"""Simulated servers as processes of their own, for tests: started on a free port, reused, all stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 60.0
_GRACE_S = 3.0
# The kernel ends what this starts when the tests are killed, which can stop nothing then.
_WITH_US = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)
_READY = "Application startup complete."
_ADDRESS = "Starting vLLM server on "


@dataclass(frozen=True, slots=True)
class SimProcess:
    """One running simulator."""

    url: str
    log_path: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        """Return everything it has printed."""
        return self.log_path.read_text(encoding="utf-8")

    def wait(self, timeout_s: float = 30.0) -> int:
        """Return its exit status once it has ended."""
        return self.process.wait(timeout_s)

    def stop(self, grace_s: float = _GRACE_S) -> None:
        """End it, with SIGKILL if it does not end by itself."""
        self.process.terminate()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class StartSimulator(Protocol):
    """The fixture ``simulator``: start a server with these flags, or hand out the one that runs with them."""

    def __call__(self, *flags: str, fresh: bool = False) -> SimProcess:
        """Return a running server; a ``fresh`` one is shared with nobody and may be killed."""


class SimulatorPool:
    """Starts each set of flags once and stops all at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[tuple[str, ...], SimProcess] = {}
        self._all: list[SimProcess] = []

    def __call__(self, *flags: str, fresh: bool = False) -> SimProcess:
        """Return a running server with these flags."""
        known = None if fresh else self._shared.get(flags)
        if known is not None and known.process.poll() is None:
            return known
        started = start_simulator(flags, self._folder / f"simulator-{len(self._all)}.log")
        self._all.append(started)
        if not fresh:
            self._shared[flags] = started
        return started

    def stop(self) -> None:
        """Stop every server, all at once."""
        for server in self._all:
            server.process.terminate()
        deadline_s = time.monotonic() + _GRACE_S
        for server in self._all:
            server.stop(max(0.0, deadline_s - time.monotonic()))


def start_simulator(flags: Sequence[str], log_path: Path) -> SimProcess:
    """Start a simulator on a free port (unless the flags name one) and wait until it listens."""
    process = spawn_simulator(flags, log_path)
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        log = log_path.read_text(encoding="utf-8")
        if _READY in log:
            return SimProcess(log.partition(_ADDRESS)[2].split()[0], log_path, process)
        if process.poll() is not None or time.monotonic() > deadline_s:
            process.kill()
            process.wait()
            raise AssertionError(f"The simulator did not start with {flags}. Its log:\n{log}")
        time.sleep(0.01)


def spawn_simulator(flags: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start a simulator and return at once; its output goes to the log."""
    simulator = [sys.executable, "-m", "pytest_sparkperf.sim", "--port", "0", *flags]
    command = [sys.executable, "-I", "-S", "-c", _WITH_US, str(os.getpid()), *simulator]
    with log_path.open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
        )
