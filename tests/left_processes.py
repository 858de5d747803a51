"""Which processes of a run of pytest are left; for tests of what ends servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

_GONE_S = 15.0


def assert_nothing_left(home: Path) -> None:
    """Wait until no process is left that a run with this home folder started."""
    deadline_s = time.monotonic() + _GONE_S
    while left := sorted(_started_in(home)):
        assert time.monotonic() < deadline_s, f"left running: {left}"
        time.sleep(0.05)


def _started_in(home: Path) -> Iterator[str]:
    """Yield the processes of a run: pytester gives each run a home of its own, which children inherit."""
    wanted = f"HOME={home}".encode()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    yield f"{process.name} {(process / 'cmdline').read_bytes()!r}"
            except OSError:
                continue  # gone meanwhile, or not ours to read
