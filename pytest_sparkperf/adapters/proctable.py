"""The processes of this machine: read, found by descent or by nonce, and ended without hitting others.

Used by the supervisor, so it may import the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

NONCE_VARIABLE = "SPARKPERF_NONCE"
# After SIGKILL only the kernel is left to wait for: a driver that gives back 100 GiB takes its seconds.
KILL_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One line of the process table; ``start`` (clock ticks since boot) tells a reused pid from the first."""

    pid: int
    ppid: int
    pgid: int
    session: int
    start: int


# Stands for a descendant that is known to exist and not by name.
UNSEEN = ProcessEntry(0, 0, 0, 0, 0)


def read_process(pid: int) -> ProcessEntry | None:
    """Read one process; None when it is gone, a zombie included."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold blanks and parentheses itself.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in b"ZX" and not _has_threads(pid):
        return None
    return ProcessEntry(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _has_threads(pid: int) -> bool:
    # A main thread that ended shows as zombie while the other threads run on and hold the memory.
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()) > 1
    except OSError:
        return False


def read_table() -> dict[int, ProcessEntry]:
    """Read all processes that this one may see, by pid."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {entry.pid: entry for entry in map(read_process, pids) if entry is not None}


def descendants(root: int, table: dict[int, ProcessEntry]) -> list[ProcessEntry]:
    """Return the processes below ``root``, without itself."""
    children: dict[int, list[ProcessEntry]] = {}
    for entry in table.values():
        children.setdefault(entry.ppid, []).append(entry)
    found: list[ProcessEntry] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [entry.pid for entry in below]
    return found


def carriers(nonce: str, table: dict[int, ProcessEntry]) -> list[ProcessEntry]:
    """Return the processes of this user that were started with the nonce in their environment."""
    marker = f"{NONCE_VARIABLE}={nonce}".encode()
    return [entry for entry in table.values() if _is_ours(entry.pid) and _carries(entry.pid, marker)]


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except OSError:
        return False


def _carries(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def send(entry: ProcessEntry, number: signal.Signals) -> None:
    """Signal exactly this process: one that took over its pid is left alone."""
    if entry == UNSEEN:
        return
    try:
        handle = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return
    except OSError:  # old kernels and some sandboxes have none: the check below is all there is
        handle = None
    now = read_process(entry.pid)
    # Gone meanwhile or another user's: it shows in what is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if now is not None and now.start == entry.start:
            if handle is None:
                os.kill(entry.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    if handle is not None:
        os.close(handle)


def kill_groups(entries: Iterable[ProcessEntry]) -> None:
    """Kill the process groups of descendants: unlike a list of pids that is atomic against a fork.

    A process cannot join a foreign session, so every group in a session below ours holds descendants only.
    """
    own = os.getsid(0)
    for group in {entry.pgid for entry in entries if entry.session != own and entry.pgid > 1}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


def end_processes(
    find: Callable[[], list[ProcessEntry]], grace_s: float, strike: Callable[[], None] = lambda: None
) -> list[int]:
    """End what ``find`` finds, again and again until it finds nothing; return the pids that would not go.

    SIGTERM first, once each, SIGKILL after the grace time; ``strike`` is called before each round of those.
    """
    told: set[ProcessEntry] = set()
    deadline = time.monotonic() + grace_s
    while (left := find()) and time.monotonic() < deadline:
        for entry in left:
            if entry not in told:
                send(entry, signal.SIGTERM)
                send(entry, signal.SIGCONT)  # a stopped process would never see it
        told.update(left)
        time.sleep(0.02)
    deadline = time.monotonic() + KILL_TIMEOUT_S
    before: list[ProcessEntry] = []
    while left and time.monotonic() < deadline:
        strike()
        kill_groups(left)
        for entry in left:
            send(entry, signal.SIGKILL)
        # New faces mean that somebody forks in a race with us: no pause then.
        time.sleep(0.01 if left == before else 0)
        before, left = left, find()
    return [entry.pid for entry in left]
