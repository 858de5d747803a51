"""Keeps baseline files in a folder: ``<hardware slug>/<test>.yaml``, each written whole or not at all.

Reading needs no lock: a file is replaced in one step, so that whoever opens it sees the old text or the new
one. Writing reads, changes and replaces under a lock of the whole folder, which the kernel lets go of when
its holder dies.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Protocol

from filelock import FileLock, Timeout

from pytest_sparkperf.adapters.baseline_text import MAX_BYTES, baseline_text, read_baseline_text
from pytest_sparkperf.core.baseline import FOLDER, BaselineFile, file_name
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.hardware import Machine

DEFAULT_FOLDER = Path(FOLDER)
_LOCK = ".lock"
_IGNORED = ".gitignore"
_TEMPORARY = ".tmp"
_LOCK_TIMEOUT_S = 60.0
_PUBLIC = 0o666
Change = Callable[[BaselineFile | None], BaselineFile]


class Files(Protocol):
    """Where baseline files are read from: a folder, or a commit."""

    @property
    def where(self) -> str:
        """A word for messages."""

    def read(self, path: str) -> bytes | None:
        """Return the text of ``slug/test.yaml``, cut behind what is allowed; None where there is none."""

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""


def baseline_path(machine: Machine, test: str) -> str:
    """Return where the baseline of a test on a machine is kept, below the folder."""
    return f"{machine.slug}/{file_name(test)}"


def load_file(files: Files, path: str) -> BaselineFile | None:
    """Read one baseline file; None where there is none, else the errors of ``read_baseline_text``."""
    data = files.read(path)
    return None if data is None else read_baseline_text(data, f"{files.where}/{path}")


def machines_with(files: Files, test: str) -> list[str]:
    """Return the slugs of the machines of which a test has a file, sorted."""
    name = file_name(test)
    return [path.parent.name for path in map(PurePosixPath, files.paths()) if path.name == name]


class FolderStore:
    """Baseline files in a folder of the working tree."""

    def __init__(self, folder: Path, *, lock_timeout_s: float = _LOCK_TIMEOUT_S) -> None:
        self._folder = folder
        self._lock_timeout_s = lock_timeout_s

    @property
    def where(self) -> str:
        """The folder."""
        return str(self._folder)

    def read(self, path: str) -> bytes | None:
        """Return the text of a file; raises ConfigError where it is there and cannot be read."""
        return read_bounded(self._folder / path)

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(str(path.relative_to(self._folder)) for path in self._folder.glob("*/*.yaml"))

    def update(self, path: str, change: Change) -> BaselineFile:
        """Change one file under the lock: ``change`` gets what it holds now; return what it holds then.

        Raises ConfigError where the folder cannot be written or another process keeps the lock.
        """
        target = self._folder / path
        with self._locked(target):
            self._tidy(target.parent)
            before = load_file(self, path)
            after = change(before)
            if after != before:
                write_whole(target, baseline_text(after))
        return after

    def remove(self, path: str) -> None:
        """Remove one file, and its folder where it was the last."""
        target = self._folder / path
        with self._locked(target):
            target.unlink(missing_ok=True)
            self._tidy(target.parent)
            with suppress(OSError):
                target.parent.rmdir()

    @contextmanager
    def _locked(self, target: Path) -> Iterator[None]:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / _LOCK, timeout=self._lock_timeout_s, mode=_PUBLIC):
                yield
        except Timeout as error:
            raise ConfigError(
                f"the baselines in {self.where} are locked by another process for more than "
                f"{self._lock_timeout_s:g} s; wait for it, or end it"
            ) from error
        except OSError as error:
            raise ConfigError(_unwritable(target, error)) from error

    def _tidy(self, folder: Path) -> None:
        """Remove what a killed writer left, and keep the lock out of git; called under the lock."""
        for leftover in folder.glob(f".*{_TEMPORARY}"):
            leftover.unlink(missing_ok=True)
        ignored = self._folder / _IGNORED
        if not ignored.exists():
            write_whole(ignored, f"{_LOCK}\n*{_TEMPORARY}\n".encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: beside it, to the disk, then in its place.

    Raises OSError, also where the path is a device or a pipe: what takes its place would be a file.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Not a plain file", str(path))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_TEMPORARY)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(stream.fileno(), _mode_of_new_files())
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_bounded(path: Path) -> bytes | None:
    """Read a plain file up to shortly behind what is allowed; None where there is none."""
    try:
        # A pipe by that name would wait for a writer for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(f"{path}: is not a plain file; remove it")
            return stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot be read: {reason}; make it readable, or remove it") from error


def _mode_of_new_files() -> int:
    """Return the mode that plain ``open`` would give; mkstemp's hides a file from other users of a runner."""
    mask = os.umask(0)
    os.umask(mask)
    return _PUBLIC & ~mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return (
        f"the baseline {path} cannot be written: {reason}; nothing was changed; make room and the folder "
        "writable, or name another by --sparkperf-baseline-dir"
    )
