"""Reads the last lines of a server's log, fit to be shown: no colours, redrawn bars or control characters."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_BYTES = 64 * 1024
# The cause of a failed start may stand far above the last line.
_END_BYTES = 4 * 1024 * 1024
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def read_end(path: Path, size: int = _END_BYTES) -> str:
    """Return the last ``size`` bytes at most, beginning with a whole line; empty without a file."""
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - size)
            file.seek(start)
            raw = file.read(size)
    except OSError:
        return ""
    return (raw.partition(b"\n")[2] if start else raw).decode("utf-8", "replace")


def read_since(path: Path, offset: int) -> tuple[str, int]:
    """Return what was appended behind a byte offset (its last 4 MiB), and the offset to go on from."""
    try:
        end = path.stat().st_size
    except OSError:
        return "", offset
    return read_end(path, min(_END_BYTES, end - offset)) if end > offset else "", end


def read_tail(path: Path, lines: int) -> list[str]:
    """Return up to ``lines`` last lines that are not empty, out of the last 64 KiB; none without a file."""
    cleaned = map(clean_line, read_end(path, _TAIL_BYTES).split("\n"))
    return [line for line in cleaned if line][-lines:]


def clean_line(line: str) -> str:
    """Return what a terminal would show of one line: the last state of a bar redrawn by carriage returns."""
    shown = line.rstrip("\r").rpartition("\r")[2]
    return _CONTROL.sub("", _ANSI.sub("", shown)).rstrip()


def fence(lines: list[str]) -> str:
    """Return the lines set off by a bar, so that none of them can speak commands to a CI runner."""
    return "\n".join(f"  | {line}" for line in lines)
