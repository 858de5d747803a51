"""One measuring run per machine: a lock that all users and containers share who share its folder.

The kernel keeps the lock and lets go of it when its holder dies, however that happens. Who holds it is
written into a file beside it, for people; a run that takes the lock and finds such a file knows that the run
before died and may have left servers.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import filelock

from pytest_sparkperf.adapters.logtail import clean_line
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.core.errors import ConfigError, ServerError

LOCK_DIR_VARIABLE = "SPARKPERF_LOCK_DIR"
DEFAULT_LOCK_DIR = "/run/lock/sparkperf"
DEFAULT_TIMEOUT_S = 3600.0
_POLL_S = 0.2
_PROGRESS_S = 10.0
_MODE = 0o666
# Not sticky: in a sticky folder the kernel keeps users from opening each other's files.
_FOLDER_MODE = 0o777


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, as that run wrote it; texts of others, cleaned for the terminal."""

    user: str
    host: str
    pid: int
    since: str
    folder: str

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"{self.user}{where} (pid {self.pid}, since {self.since}, in {self.folder})"


@dataclass(slots=True)
class MachineLock:
    """The lock of this machine. ``acquire`` waits for it, ``release`` gives it back; a death does so too."""

    folder: Path
    outside: Surroundings = field(default_factory=Surroundings)
    _lock: filelock.FileLock | None = None

    def acquire(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Holder | None:
        """Take the lock, saying for whom it waits; return a holder that died with it, if one did.

        Raises ServerError when it is still held after ``timeout_s``, ConfigError for an unusable folder.
        """
        lock = self._open()
        started_s = self.outside.clock()
        told_s: float | None = None
        while not _taken(lock, self.folder):
            now = self.outside.clock()
            if now - started_s >= timeout_s:
                raise ServerError(
                    f"this machine still measures for {self._who()} after {timeout_s:g} s of waiting; wait "
                    "for that run to end, or raise --sparkperf-lock-timeout."
                )
            if told_s is None or now - told_s >= _PROGRESS_S:
                told_s = now
                self.outside.progress(f"this machine measures for {self._who()}; waiting for it to end")
            self.outside.sleep(_POLL_S)
        self._lock = lock
        died = read_holder(self._holder_path)
        self._write_holder()
        return died

    def release(self) -> None:
        """Give the lock back; may be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            self._holder_path.unlink(missing_ok=True)
            lock.release()

    @property
    def held(self) -> bool:
        """Whether this run holds it."""
        return self._lock is not None

    @property
    def _holder_path(self) -> Path:
        return self.folder / "holder.json"

    def _who(self) -> str:
        return str(read_holder(self._holder_path) or "a run that does not say who it is")

    def _open(self) -> filelock.FileLock:
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True, exist_ok=True)
                self.folder.chmod(_FOLDER_MODE)
        except OSError as error:
            raise _unusable(self.folder, error) from None
        return filelock.FileLock(self.folder / "machine.lock", mode=_MODE)

    def _write_holder(self) -> None:
        holder = {
            "user": _user(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
            "folder": str(Path.cwd()),
        }
        draft = self.folder / f"holder.{os.getpid()}.tmp"
        draft.write_text(json.dumps(holder), encoding="utf-8")
        draft.chmod(_MODE)
        draft.replace(self._holder_path)


def lock_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the lock: ``SPARKPERF_LOCK_DIR``, else one that all runs of a machine share."""
    return Path(environ.get(LOCK_DIR_VARIABLE) or DEFAULT_LOCK_DIR)


def present_holder(folder: Path) -> Holder | None:
    """Return who holds the lock now, without waiting for it; None when it is free."""
    lock = filelock.FileLock(folder / "machine.lock", mode=_MODE)
    if not folder.is_dir() or _taken(lock, folder):
        lock.release()
        return None
    return read_holder(folder / "holder.json")


def read_holder(path: Path) -> Holder | None:
    """Read who holds the lock; None when nobody says so, or not in words of ours."""
    try:
        said: Any = json.loads(path.read_text("utf-8"))
        texts = {
            key: clean_line(" ".join(str(said[key]).split()))[:200]
            for key in ("user", "host", "since", "folder")
        }
        return Holder(pid=int(said["pid"]), **texts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _taken(lock: filelock.FileLock, folder: Path) -> bool:
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise _unusable(folder, error) from None
    return True


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{str(folder)!r} cannot hold the lock of this machine ({error.strerror or error}); set "
        f"{LOCK_DIR_VARIABLE} to a folder that everybody who measures here can write."
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user need not have a name
        return f"uid {os.getuid()}"
