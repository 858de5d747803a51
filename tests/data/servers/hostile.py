"""A server that does what engines and daemons do: forks twice, changes its session, ignores SIGTERM.

Usage: hostile.py FILE [die|refork|resession]. FILE gets one pid per line, the main process first. With
``die`` the main process exits with status 7 as soon as its daemon runs; with ``refork`` the daemon replaces
itself by a child all the time, with ``resession`` by one in a session of its own. Every process holds
FILE.fifo, where that exists, open for writing. Should nobody end them they leave by themselves.
"""

import os
import signal
import sys
import time
from pathlib import Path

END_S = time.monotonic() + 120


def note(path: Path) -> None:
    with path.open("a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def main(path: Path, way: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    fifo = Path(f"{path}.fifo")
    if fifo.exists():
        os.open(fifo, os.O_WRONLY)
    note(path)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            note(path)
            daemon(way)
        os._exit(0)
    while time.monotonic() < END_S:
        if way == "die" and len(path.read_text("ascii").split()) == 2:
            sys.exit(7)
        time.sleep(0.01)


def daemon(way: str) -> None:
    while time.monotonic() < END_S:
        if not way.startswith("re"):
            time.sleep(0.1)
        elif os.fork() != 0:
            os._exit(0)
        elif way == "resession":
            os.setsid()
    os._exit(0)


main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
