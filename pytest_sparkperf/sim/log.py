"""Log lines in vLLM's form, so that what reads a server's log reads this one too."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO


class ServerLog:
    """Writes lines with vLLM's prefixes: process, level, time, source."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream

    def line(self, source: str, text: str, *, process: str = "APIServer", level: str = "INFO") -> None:
        """Write one line of a process of the server's."""
        stamp = time.strftime("%m-%d %H:%M:%S")
        self.plain(f"({process} pid={os.getpid()}) {level} {stamp} [{source}:1] {text}")

    def plain(self, text: str) -> None:
        """Write one line as it stands."""
        self._stream.write(f"{text}\n")
        self._stream.flush()
