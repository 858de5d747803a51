"""Finds and ends what is left of servers whose supervisor was killed, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_sparkperf.adapters.proctable import (
    ProcessEntry,
    carriers,
    descendants,
    end_processes,
    read_process,
    read_table,
)
from pytest_sparkperf.adapters.supervisor import run_commands, scrub
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.secrets import secret_values

# A supervisor gives its server its own time to end, and runs the commands that belong to it.
_SUPERVISOR_S, _POLL_S = 120.0, 0.05
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Ended:
    """What could not be ended: processes by pid, and commands that failed; nothing when all is gone."""

    pids: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.pids or self.failed)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a record says of a server whose supervisor is dead, or whose run left it up on purpose.

    The processes are found by start time, uid and nonce. ``before`` and ``after`` are the commands that its
    supervisor would have run around their end; one that lives (``supervisor``) is asked to do all of it.
    """

    path: Path
    name: str
    nonce: str
    recorded: tuple[tuple[int, int], ...]
    before: tuple[tuple[str, ...], ...] = ()
    after: tuple[tuple[str, ...], ...] = ()
    cwd: str = "/"
    log_path: str | None = None
    supervisor: tuple[int, int] | None = None

    def processes(self) -> list[ProcessEntry]:
        """Return those that still run, and whatever is below them."""
        table = read_table()
        known = {
            pid: table[pid] for pid, start in self.recorded if pid in table and table[pid].start == start
        }
        known |= {entry.pid: entry for entry in carriers(self.nonce, table)}
        for root in list(known):
            known |= {entry.pid: entry for entry in descendants(root, table)}
        known.pop(os.getpid(), None)
        return list(known.values())

    def end(self, grace_s: float = 10.0) -> Ended:
        """End them and remove the record; return what would not go, and keep the record then."""
        if self.supervisor is not None and self._asked_to_end(*self.supervisor):
            return Ended()
        spec = {"cwd": self.cwd, "log_path": os.devnull, "stop_timeout_s": grace_s}
        failed = run_commands([list(argv) for argv in self.before], spec)
        left = end_processes(self.processes, grace_s)
        failed += run_commands([list(argv) for argv in self.after], spec)
        ended = Ended(tuple(left), tuple(failed))
        if not ended:
            if self.log_path is not None:
                scrub(Path(self.log_path), secret_values(os.environ))
            self.path.unlink(missing_ok=True)
        return ended

    def _asked_to_end(self, pid: int, start: int) -> bool:
        """Ask the supervisor to end its server; False when it did not, and then it is ended itself."""
        deadline_s = time.monotonic() + _SUPERVISOR_S
        with contextlib.suppress(ProcessLookupError):
            if _lives((pid, start)):
                os.kill(pid, signal.SIGTERM)
            while _lives((pid, start)) and time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
            if _lives((pid, start)):
                os.kill(pid, signal.SIGKILL)
        return not self.path.exists()


def record_dir() -> Path:
    """Return the folder of this user's records, made if need be; refuse one that others could write."""
    path = Path(tempfile.gettempdir()) / f"sparkperf-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise ServerError(
            f"{str(path)!r} holds the records of started servers and must be a folder "
            "that only you can write; remove it, or set TMPDIR to a folder of your own."
        )
    return path


def find_leftovers(folder: Path | None = None) -> list[Leftover]:
    """Return the records of servers that no run uses; those of another machine or boot are passed over."""
    folder = record_dir() if folder is None else folder
    found = (read_leftover(path) for path in sorted(folder.glob("*.json")))
    return [leftover for leftover in found if leftover is not None]


def read_leftover(path: Path) -> Leftover | None:
    """Read one record; None when a run uses its server, or it is of another boot or user."""
    try:
        record: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("uid") != os.getuid():
        return None
    lives = _lives(record.get("supervisor"))
    if record.get("boot_id") != _BOOT_ID.read_text("ascii").strip() or (lives and not record.get("kept")):
        return None
    found = _leftover(path, record)
    return replace(found, supervisor=tuple(record["supervisor"])) if lives else found


def _leftover(path: Path, record: Mapping[str, Any]) -> Leftover:
    pairs = [record["server"], *record["descendants"]]
    recorded = tuple((pair[0], pair[1]) for pair in pairs if pair)
    before, after = (
        tuple(tuple(argv) for argv in record.get(key, ())) for key in ("stop_commands", "cleanup_commands")
    )
    cwd, log = record.get("cwd", "/"), record.get("log_path")
    return Leftover(path, record["name"], record["nonce"], recorded, before, after, cwd, log)


def _lives(pair: Any) -> bool:
    entry = read_process(pair[0]) if pair else None
    return entry is not None and entry.start == pair[1]
