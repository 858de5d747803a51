"""Runs one server as its own small process and ends everything the server ever started, whatever happens.

Started by path (``python -I -S supervisor.py``), so it may import the standard library only. One JSON line on
stdin says what to run (:data:`Spec`); JSON lines on stdout report ``{"pid", "start"}``, ``{"error"}``,
``{"exit"}`` and at last ``{"left": [pids]}``. The end comes when stdin closes (asked, or the parent is gone),
the parent changes, a signal asks for it, or the server exits by itself.

Why not a process group: engines change their session, daemons fork twice, and both leave the group. As child
subreaper this process becomes the parent of every orphan below it, so the tree under it is complete.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

# argv, env (complete), cwd, log_path, stop_timeout_s, record_path, nonce, parent_pid
Spec = dict[str, Any]

NONCE_VARIABLE = "SPARKPERF_NONCE"
# After SIGKILL only the kernel is left to wait for: a driver that gives back 100 GiB takes its seconds.
KILL_TIMEOUT_S = 20.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WATCH_S = 0.25
_RECORD_S = 2.0
_STRIKES = 200
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


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


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write the record whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(record), encoding="utf-8")
    draft.replace(path)


class Supervisor:
    """Starts the server of one spec, watches, and ends all there is below this process."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._record_path = Path(spec["record_path"])
        self._pid: int | None = None
        self._exited = False
        self._recorded: list[list[int]] = []
        self._wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._asked = False
        for number in _SIGNALS:
            signal.signal(number, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # noticed through the wake-up pipe

    def _ask(self, *_: object) -> None:
        self._asked = True

    def run(self) -> int:
        """Start, watch and end; return the exit status of this process."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._record([])
        try:
            self._start()
        except OSError as error:
            _report({"error": error.strerror or str(error), "errno": error.errno})
            self._record_path.unlink(missing_ok=True)
            return 1
        self._watch()
        left = end_processes(self._find, self._spec["stop_timeout_s"], self._strike)
        _report({"left": left})
        if left:
            return 1
        self._record_path.unlink(missing_ok=True)
        return 0

    def _start(self) -> None:
        spec = self._spec
        # vLLM's setproctitle would write the title over the environment, and the nonce with it.
        env = {"SPT_NOENV": "1", **spec["env"], NONCE_VARIABLE: spec["nonce"]}
        supervisor = os.getpid()
        with Path(spec["log_path"]).open("ab", buffering=0) as log:
            # preexec_fn is unsafe beside threads only; this process has none.
            server = subprocess.Popen(
                spec["argv"],
                env=env,
                cwd=spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _prepare_child(supervisor),
            )
        self._pid = server.pid
        server.returncode = 0  # reaped by _reap, which would take it from Popen anyway
        entry = read_process(server.pid)
        self._record([])
        _report({"pid": server.pid, "start": None if entry is None else entry.start})

    def _watch(self) -> None:
        watched = select.poll()
        watched.register(0, select.POLLIN | select.POLLHUP)
        watched.register(self._wake, select.POLLIN)
        recorded_at = time.monotonic()
        while not self._asked and not self._exited and os.getppid() == self._spec["parent_pid"]:
            for fd, _ in watched.poll(_WATCH_S * 1000):
                if not os.read(fd, 4096):
                    return
            self._reap()
            if time.monotonic() - recorded_at > _RECORD_S:
                self._record([[e.pid, e.start] for e in descendants(os.getpid(), read_table())])
                recorded_at = time.monotonic()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._exited = True
                _report({"exit": os.waitstatus_to_exitcode(status)})

    def _find(self) -> list[ProcessEntry]:
        self._reap()
        table = read_table()
        found = {e.pid: e for e in descendants(os.getpid(), table) + carriers(self._spec["nonce"], table)}
        # Reading the table takes milliseconds: who forks and exits all the time is never in it. That there
        # is no child left, and so no descendant, is known for certain from the kernel alone.
        return list(found.values()) or ([UNSEEN] if _has_children() else [])

    def _strike(self) -> None:
        """Kill children faster than those that fork all the time can go on.

        A child that is not reaped yet, dead or alive, keeps its pid and its group's number from being reused.
        """
        own = os.getsid(0)
        for _ in range(_STRIKES):
            for pid in reversed(_children()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    if os.getsid(pid) != own:
                        os.killpg(os.getpgid(pid), signal.SIGKILL)
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            if not _has_children():
                return

    def _record(self, below: list[list[int]]) -> None:
        if below and below == self._recorded:
            return
        self._recorded = below
        spec = self._spec
        own, server = read_process(os.getpid()), self._pid and read_process(self._pid)
        record = {
            "supervisor": own and [own.pid, own.start],
            "server": server and [server.pid, server.start],
            "descendants": below,
            "uid": os.getuid(),
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
            "nonce": spec["nonce"],
            "name": Path(spec["argv"][0]).name,
            "log_path": spec["log_path"],
        }
        write_record(self._record_path, record)


def _prepare_child(supervisor: int) -> None:
    # Should this process be killed, its child goes too; the record names whatever is further below.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    # Unified memory: where it runs out, the kernel must take the server and not the host's own services.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    own = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_bytes().split()]
    except OSError:  # a kernel without this file: the process table has to do
        return [entry.pid for entry in read_table().values() if entry.ppid == own]


def _report(message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the parent is gone: the work of this process goes on
        os.write(1, json.dumps(message).encode() + b"\n")


def _read_spec() -> Spec:
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(0, 65536)
        if not chunk:
            raise SystemExit(0)  # the parent left before it asked for anything
        line += chunk
    spec: Spec = json.loads(line)
    return spec


def main() -> NoReturn:
    """Run the server described on stdin."""
    raise SystemExit(Supervisor(_read_spec()).run())


if __name__ == "__main__":
    if sys.platform != "linux":
        raise SystemExit("the supervisor needs Linux: /proc and a child subreaper")
    main()
