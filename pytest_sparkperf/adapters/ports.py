"""Ports of this machine: a free one, whether one answers, and whether given processes hold it."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LISTEN = "0A"


def free_port() -> int:
    """Return a port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Say whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def held_by(port: int, pids: Iterable[int]) -> bool | None:
    """Say whether one of the processes listens on the port; None where the kernel does not show it."""
    sockets = _listening_sockets(port)
    return any(_has_socket(pid, sockets) for pid in pids) if sockets else None


def _listening_sockets(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _has_socket(pid: int, sockets: set[str]) -> bool:
    try:
        names = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for name in names:
        try:
            if str(name.readlink()) in sockets:
                return True
        except OSError:
            continue  # closed meanwhile
    return False
