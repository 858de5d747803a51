"""A server process under its supervisor: start, watch, read its log, stop it with everything it started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytest_sparkperf.adapters import supervisor as supervisor_program
from pytest_sparkperf.adapters.leftovers import Leftover, read_leftover, record_dir
from pytest_sparkperf.adapters.logtail import read_tail
from pytest_sparkperf.adapters.supervisor import KILL_TIMEOUT_S, descendants, read_table
from pytest_sparkperf.core.errors import ServerError

# A busy machine may take its time to start a Python process, or to let one report its end.
_START_TIMEOUT_S = 60.0
_STOP_MARGIN_S = 20.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run; ``env`` is the whole environment, ``stop_timeout_s`` lies between SIGTERM and SIGKILL."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log_path: Path
    cwd: Path | None = None
    stop_timeout_s: float = 10.0
    record_dir: Path | None = None


class SupervisedProcess:
    """A started server; all that it ever starts is gone once :meth:`stop` returned or this process ended."""

    def __init__(
        self, spec: ProcessSpec, watcher: subprocess.Popen[bytes], record_path: Path, nonce: str
    ) -> None:
        self._spec = spec
        self._watcher = watcher
        self._record_path = record_path
        self._nonce = nonce
        self._unread = b""
        self._reports: dict[str, Any] = {}
        self._stopped = False

    @classmethod
    def start(cls, spec: ProcessSpec) -> Self:
        """Start the server under a supervisor of its own; raise ServerError when it cannot be executed."""
        nonce = secrets.token_hex(16)
        record_path = (spec.record_dir or record_dir()) / f"{nonce}.json"
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        # Neither the server nor its supervisor holds our stdout and stderr: whoever reads those to their
        # end, as a CI job does, must not wait for a server.
        with spec.log_path.open("wb") as log:
            watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor_program.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        process = cls(spec, watcher, record_path, nonce)
        try:
            process._hand_over()
        except BaseException:
            process.stop()
            raise
        return process

    def _hand_over(self) -> None:
        spec = self._spec
        message = {
            "argv": spec.argv,
            "env": dict(spec.env),
            "cwd": str(spec.cwd or Path.cwd()),
            "log_path": str(spec.log_path),
            "stop_timeout_s": spec.stop_timeout_s,
            "record_path": str(self._record_path),
            "nonce": self._nonce,
            "parent_pid": os.getpid(),
        }
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its death is noticed below
            self._watcher.stdin.write(json.dumps(message).encode() + b"\n")
            self._watcher.stdin.flush()
        self._await({"pid", "error", "end"}, _START_TIMEOUT_S)
        if "error" in self._reports:
            raise ServerError(
                f"{spec.argv[0]!r} could not be started: {self._reports['error']}; "
                "check that it is an executable file of this machine."
            )
        if "pid" not in self._reports:
            raise ServerError(
                f"the supervisor of {spec.argv[0]!r} did not start (see {str(spec.log_path)!r}); "
                f"check that {sys.executable!r} works."
            )

    @property
    def pid(self) -> int:
        """The process id of the server's main process."""
        return int(self._reports["pid"])

    @property
    def supervisor_pid(self) -> int:
        """The process id of the supervisor."""
        return self._watcher.pid

    @property
    def log_path(self) -> Path:
        """The file that holds stdout and stderr of the server."""
        return self._spec.log_path

    def pids(self) -> list[int]:
        """Return the processes that run now: the server's main process and all below it."""
        return [entry.pid for entry in descendants(self.supervisor_pid, read_table())]

    def poll(self) -> int | None:
        """Return the exit status of the main process (negative: the signal that killed it), None before."""
        self._read_reports(0)
        if "exit" in self._reports:
            return int(self._reports["exit"])
        # Without its supervisor the kernel kills the server.
        return -int(signal.SIGKILL) if "end" in self._reports else None

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the log that are not empty, without colours and control characters."""
        return "\n".join(read_tail(self._spec.log_path, lines))

    def stop(self) -> None:
        """End the server with all its descendants; raise ServerError naming those that would not go."""
        if self._stopped:
            return
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.close()
        self._await({"end"}, self._spec.stop_timeout_s + KILL_TIMEOUT_S + _STOP_MARGIN_S)
        self._watcher.kill()  # a no-op after its end; else it hangs, and the sweep below does its work
        self._watcher.wait()
        left = self._reports.get("left")
        if left is None:
            left = self._sweep()
        if left:
            raise ServerError(
                f"{self._spec.argv[0]!r} was stopped, but processes of it do not end: "
                f"{', '.join(map(str, sorted(left)))}; look at them with ps, a driver may hold them."
            )
        assert self._watcher.stdout is not None
        self._watcher.stdout.close()
        self._stopped = True

    def _sweep(self) -> list[int]:
        leftover = read_leftover(self._record_path)
        if leftover is None:
            leftover = Leftover(self._record_path, self._spec.argv[0], self._nonce, ())
        return leftover.end(self._spec.stop_timeout_s)

    def _await(self, keys: set[str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not keys & self._reports.keys() and (remaining := deadline - time.monotonic()) > 0:
            self._read_reports(remaining)

    def _read_reports(self, timeout_s: float) -> None:
        """Take in what the supervisor said; ``end`` stands for its closed pipe."""
        assert self._watcher.stdout is not None
        while "end" not in self._reports:
            if not select.select([self._watcher.stdout], [], [], timeout_s)[0]:
                return
            chunk = os.read(self._watcher.stdout.fileno(), 65536)
            if not chunk:
                self._reports["end"] = True
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for line in lines:
                self._reports |= json.loads(line)
            timeout_s = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
