"""The file of a run that may be broken off: a line of JSON per finished measurement."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.kept import result_document, result_from
from pytest_sparkperf.core.result import Result

_FORMAT = "sparkperf-kept-1"
# Far above any sweep; a file that is larger is something else.
_MAX_BYTES = 1 << 28


class KeptFile:
    """Results by their gate's digest. Reads the file once; adds each new one as a whole line, to the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results = _read(path)

    def find(self, digest: str) -> Result | None:
        """Return what is kept of a gate; None where it has to be measured."""
        return self._results.get(digest)

    def add(self, digest: str, test: str, result: Result) -> None:
        """Keep a result; raises ConfigError where the file cannot be written."""
        words = {"format": _FORMAT, "digest": digest, "test": test, "result": result_document(result)}
        line = json.dumps(words, separators=(",", ":"), allow_nan=False) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                # A line that was cut off by a kill must not swallow this one.
                cut = file.tell() > 0 and not _ends_a_line(self._path)
                file.write((b"\n" if cut else b"") + line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigError(
                f"{str(self._path)!r} cannot be written ({error.strerror}), so this run could not be "
                "resumed; name another file by --sparkperf-resume, or leave it out"
            ) from None
        self._results[digest] = result


def _read(path: Path) -> dict[str, Result]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(_no_file_of_ours(path))
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read ({error.strerror}); name a file by --sparkperf-resume"
        ) from None
    found: dict[str, Result] = {}
    for number, line in enumerate(lines, start=1):
        words = _words(line)
        if words is None:
            continue  # cut off: its gate is measured again
        if words.get("format") != _FORMAT:
            raise ConfigError(_no_file_of_ours(path))
        found[str(words.get("digest"))] = result_from(words["result"], f"line {number} of {str(path)!r}")
    if not found and any(lines):
        raise ConfigError(_no_file_of_ours(path))
    return found


def _words(line: bytes) -> dict[str, Any] | None:
    try:
        words = json.loads(line)
    except ValueError:
        return None
    return words if isinstance(words, dict) else {}


def _no_file_of_ours(path: Path) -> str:
    return (
        f"{str(path)!r} is not a file that --sparkperf-resume has written; name a new one, which is made, or "
        "the one of the run that was broken off"
    )


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
