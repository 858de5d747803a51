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

from pytest_sparkperf.adapters.leftovers import Leftover, read_leftover, record_dir
from pytest_sparkperf.adapters.logtail import read_tail
from pytest_sparkperf.adapters.proctable import KILL_TIMEOUT_S, descendants, read_table
from pytest_sparkperf.adapters.supervisor import COMMAND_MARGIN_S, START
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.secrets import secret_values

# A busy machine may take its time to start a Python process, or to let one report its end.
_START_TIMEOUT_S = 60.0
_STOP_MARGIN_S = 20.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run; ``env`` is the whole environment, ``stop_timeout_s`` lies between SIGTERM and SIGKILL.

    ``stop_commands`` run before the processes are ended, ``cleanup_commands`` after that, whatever happens.
    With ``stays`` the main process may return once the server is on its way. A start is ended when less than
    ``memory_floor`` bytes are available. ``nonce`` tells everything of this start from everything else.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log_path: Path
    cwd: Path | None = None
    stop_timeout_s: float = 10.0
    record_dir: Path | None = None
    stop_commands: tuple[tuple[str, ...], ...] = ()
    cleanup_commands: tuple[tuple[str, ...], ...] = ()
    stays: bool = False
    memory_floor: int = 0
    nonce: str | None = None


def new_nonce() -> str:
    """Return a word that nothing else on this machine carries."""
    return secrets.token_hex(16)


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
        nonce = spec.nonce or new_nonce()
        record_path = (spec.record_dir or record_dir()) / f"{nonce}.json"
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        # Neither the server nor its supervisor holds our stdout and stderr: whoever reads those to their
        # end, as a CI job does, must not wait for a server.
        with spec.log_path.open("wb") as log:
            watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", START, str(Path(__file__).parents[1])],
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
            "stop_commands": spec.stop_commands,
            "cleanup_commands": spec.cleanup_commands,
            "stays": spec.stays,
            "memory_floor": spec.memory_floor,
            "secrets": self.secrets,
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

    @property
    def nonce(self) -> str:
        """The word that everything of this start carries."""
        return self._nonce

    @property
    def stays(self) -> bool:
        """Whether the server may go on when its main process has returned."""
        return self._spec.stays

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret values of its environment, for hiding them in what it logs."""
        return secret_values(self._spec.env)

    @property
    def short_of_memory(self) -> Mapping[str, int] | None:
        """The memory (bytes) at which the start was ended, None when it was not for that."""
        self._read_reports(0)
        found: Mapping[str, int] | None = self._reports.get("memory")
        return found

    def ready(self) -> None:
        """Tell the supervisor that the server is up, so that memory does not end it any more."""
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.write(b"ready\n")
            self._watcher.stdin.flush()

    def poll(self) -> int | None:
        """Return the exit status of the main process (negative: the signal that killed it), None before.

        Of one that stays an exit with status 0 says nothing about the server, and is None too.
        """
        self._read_reports(0)
        if self._reports.get("exit") or ("exit" in self._reports and not self._spec.stays):
            return int(self._reports["exit"])
        # Without its supervisor the kernel kills the server.
        return -int(signal.SIGKILL) if "end" in self._reports else None

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the log that are not empty, without colours and control characters."""
        return "\n".join(read_tail(self._spec.log_path, lines))

    def keep(self) -> None:
        """Let the server outlive this process; its record stays, by which ``sparkperf stop`` ends it."""
        assert self._watcher.stdin is not None
        assert self._watcher.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.write(b"keep\n")
            self._watcher.stdin.flush()
        self._await({"kept", "end"}, _START_TIMEOUT_S)
        if "kept" not in self._reports:
            self.stop()
            raise ServerError(
                f"{self._spec.argv[0]!r} could not be kept: its supervisor does not answer (see "
                f"{str(self._spec.log_path)!r}); it was stopped."
            )
        self._stopped = True
        self._watcher.stdin.close()
        self._watcher.stdout.close()
        # Not ours to wait for any more: without this its Popen would warn of a process that still runs.
        self._watcher.returncode = 0

    def stop(self) -> None:
        """End the server with all its descendants; raise ServerError naming those that would not go."""
        if self._stopped:
            return
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.close()
        commands = len(self._spec.stop_commands) + len(self._spec.cleanup_commands)
        timeout_s = (commands + 1) * self._spec.stop_timeout_s + KILL_TIMEOUT_S
        self._await({"end"}, timeout_s + _STOP_MARGIN_S + commands * COMMAND_MARGIN_S)
        self._watcher.kill()  # a no-op after its end; else it hangs, and the sweep below does its work
        self._watcher.wait()
        assert self._watcher.stdout is not None
        self._watcher.stdout.close()
        self._reports["end"] = True
        left = self._reports.get("left")
        if left is None:
            left = self._sweep()
        if left:
            raise ServerError(
                f"{self._spec.argv[0]!r} was stopped, but processes of it do not end: "
                f"{', '.join(map(str, sorted(left)))}; look at them with ps, a driver may hold them."
            )
        if self._reports.get("failed"):
            raise ServerError(
                f"{self._spec.argv[0]!r} was stopped, but what ends the rest of it failed: "
                f"{', '.join(map(repr, self._reports['failed']))} (see {str(self._spec.log_path)!r}); run "
                "`sparkperf stop` once the reason is gone."
            )
        self._stopped = True

    def _sweep(self) -> list[int]:
        leftover = read_leftover(self._record_path)
        if leftover is None:
            leftover = Leftover(self._record_path, self._spec.argv[0], self._nonce, ())
        end = leftover.end(self._spec.stop_timeout_s)
        self._reports["failed"] = list(end.failed)
        return list(end.pids)

    def _await(self, keys: set[str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not keys & self._reports.keys() and (remaining := deadline - time.monotonic()) > 0:
            self._read_reports(remaining)

    def _read_reports(self, timeout_s: float) -> None:
        """Take in what the supervisor said; ``end`` stands for its closed pipe."""
        assert self._watcher.stdout is not None
        while "end" not in self._reports and not self._watcher.stdout.closed:
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
