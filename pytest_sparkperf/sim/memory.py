"""Memory that a server does not give back when it ends (a fault): a process of its own holds it."""

from __future__ import annotations

import subprocess
import sys

from pytest_sparkperf.sim.faults import Faults
from pytest_sparkperf.sim.log import ServerLog

# Written to, or the kernel would not hand it out; it ends by itself, so that a test leaves nothing for long.
_HOLD = "import sys, time; held = bytearray(b'x') * (int(sys.argv[1]) << 20); time.sleep(60)"


class MemoryKeeper:
    """Starts a process in a session of its own that outlives the server."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        self._holder: subprocess.Popen[bytes] | None = None

    def follow(self, faults: Faults) -> None:
        """Hold memory from when the fault is on until it is off."""
        if faults.memory_kept is None:
            if self._holder is not None:
                self._holder.kill()
                self._holder.wait()
                self._holder = None
        elif self._holder is None:
            command = [sys.executable, "-c", _HOLD, str(faults.memory_kept)]
            self._holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            text = f"{faults.memory_kept} MiB are held by process {self._holder.pid} (fault memory_kept)"
            self._log.line("simulator", text)
