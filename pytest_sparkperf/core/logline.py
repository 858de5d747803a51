"""Takes server log text apart into lines without what terminals and container tools put around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LINE_END = re.compile(r"[\r\n]+")  # a carriage return ends the frame of a progress bar
_PREFIX = re.compile(
    r"(?:[\w.\[\]-]+[ ]+\|[ ])?"  # docker compose: "service  | "
    r"(?:[A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d[ ]\S+[ ][^\s:]+:[ ])?"  # journald
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?[ ]+(?:\|[ ])?)?"  # docker logs -t
    r"(?:\((?P<process>[\w= ]+?)[ ]pid=(?P<pid>\d+)[^)]*\)[ ]?)*"  # Ray's, then vLLM's: the last counts
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r"(?::[ ]+|[ ]\d\d-\d\d[ ][\d:.]+[ ]\[?(?:[^\s\]]*/)?(?P<file>[\w.-]+):\d+\][ ]?))?"
)

BANNER = re.compile(r"(?:vLLM API server|[\s\u2580-\u259f]*) version (?P<vllm_version>\d+\.\d+\S*)$")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log; ``process``, ``level`` and ``file`` are None where the line does not name them."""

    body: str
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    file: str | None = None

    @property
    def speaker(self) -> str:
        """The process with its number, telling apart two starts in one file; empty when not named."""
        return f"{self.process} {self.pid}" if self.process else ""


def last_start(lines: Sequence[LogLine]) -> list[LogLine]:
    """Return the lines of the last start in a log that was appended to, as far as vLLM's banner shows it."""
    starts = [at for at, line in enumerate(lines) if BANNER.match(line.body)]
    return list(lines[starts[-1] if starts else 0 :])


def log_lines(text: str) -> Iterator[LogLine]:
    """Yield the lines that hold text, without colours, prefixes and carriage returns."""
    for raw in _LINE_END.split(_ANSI.sub("", text)):
        found = _PREFIX.match(raw)
        assert found is not None  # every part is optional
        body = raw[found.end() :].rstrip()
        if body:
            pid = None if found["pid"] is None else int(found["pid"])
            yield LogLine(body, found["process"], pid, found["level"], found["file"])
