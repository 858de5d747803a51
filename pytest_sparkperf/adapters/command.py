"""Runs a short command of the system within a time limit, and says in words why it gave no answer."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A process stuck in the kernel does not even follow SIGKILL: it is left behind after this.
_LEAVE_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said. ``status`` None: it could not be run or did not end, for the reason in "
    "``problem``."""

    status: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    problem: str | None = None
    absent: bool = False

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """The last line of what it complained of, or of what it said."""
        said = (self.stderr.decode("utf-8", "replace").strip() or self.text.strip()).splitlines()
        return self.problem or (said[-1].strip() if said else f"exit status {self.status}")


Run = Callable[[Sequence[str], float], Answer]


def run_command(arguments: Sequence[str], timeout_s: float, *, cwd: Path | None = None) -> Answer:
    """Run a command and wait for it at most ``timeout_s``; never raises for what the command does."""
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"},
            start_new_session=True,
        )
    except FileNotFoundError:
        return Answer(None, problem=f"there is no program {arguments[0]!r} on PATH", absent=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return Answer(None, problem=f"{arguments[0]} could not be started: {reason}")
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _give_up(process)
        return Answer(None, problem=f"{arguments[0]} gave no answer within {timeout_s:g} s")
    return Answer(process.returncode, stdout, stderr)


def run_through(prefix: Sequence[str]) -> Run:
    """Return what runs a command through another one, such as ``ssh spark2``, where the server is."""
    return lambda arguments, timeout_s: run_command((*prefix, *arguments), timeout_s)


def _give_up(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_LEAVE_AFTER_S)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # else its object would warn of it for ever
