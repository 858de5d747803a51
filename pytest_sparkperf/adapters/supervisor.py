"""Runs one server as its own small process and ends everything the server ever started, whatever happens.

Started without site-packages (see :data:`START`), so it and what it imports of the package may import the
standard library only. One JSON line on stdin says what to run (:data:`Spec`); JSON lines on stdout report
``{"pid", "start"}``, ``{"error"}``, ``{"exit"}``, ``{"memory"}``, ``{"kept"}`` and at last ``{"left": [pids],
"failed": [commands]}``. The end comes when stdin closes (asked, or the parent is gone), the parent changes, a
signal asks for it, the server exits by itself, or memory runs out before a line on stdin says that the server
is ready. After the line ``keep`` only a signal or the server itself ends it.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..core.secrets import redact
from .proctable import (
    NONCE_VARIABLE,
    UNSEEN,
    ProcessEntry,
    carriers,
    descendants,
    end_processes,
    read_process,
    read_table,
)

# argv, env (complete), cwd, log_path, stop_timeout_s, record_path, nonce, parent_pid; and, where given:
# stop_commands run before the processes are ended, cleanup_commands after that; stays: an exit with status 0
# is not the end of the server; memory_floor: bytes of MemAvailable below which a start is ended; secrets:
# texts that the log must not keep.
Spec = dict[str, Any]

# The package by itself would bring pytest; here it is a folder of modules.
START = (
    "import sys, types; package = types.ModuleType('alone'); package.__path__ = [sys.argv.pop(1)]; "
    "sys.modules['alone'] = package; from alone.adapters.supervisor import main; main()"
)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WATCH_S = 0.2
# A command that stops a server may wait for the server's own grace time.
COMMAND_MARGIN_S = 60.0
_RECORD_S = 2.0
_STRIKES = 200
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def read_memory() -> dict[str, int] | None:
    """Read available and free memory and free swap, in bytes; None where the kernel does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    found = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    wanted = ("MemAvailable", "MemFree", "SwapFree")
    return {name: found[name] for name in wanted} if found.keys() >= set(wanted) else None


def run_commands(commands: list[list[str]], spec: Spec) -> list[str]:
    """Run commands one after the other, their output to the log; return the words of those that failed."""
    failed = []
    with Path(spec["log_path"]).open("ab", buffering=0) as log:
        for argv in commands:
            try:
                code = subprocess.run(
                    argv,
                    env=spec.get("env"),
                    cwd=spec["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=spec["stop_timeout_s"] + COMMAND_MARGIN_S,
                    check=False,
                ).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                log.write(f"sparkperf: {argv[0]}: {error}\n".encode())
                code = -1
            if code:
                failed.append(" ".join(argv[:3]))
    return failed


def scrub(path: Path, secrets: Sequence[str]) -> None:
    """Hide secrets in the log of a server that has ended; whole or not at all.

    Nothing takes the place of a device or a pipe.
    """
    if not path.is_file():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with (
            path.open(encoding="utf-8", errors="surrogateescape", newline="") as log,
            draft.open("w", encoding="utf-8", errors="surrogateescape", newline="") as clean,
        ):
            clean.writelines(redact(line, secrets) for line in log)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)


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
        self._floor: int = spec.get("memory_floor") or 0
        self._recorded: list[list[int]] = []
        self._kept = False
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
        timeout_s = self._spec["stop_timeout_s"]
        failed = self._run_commands("stop_commands")
        left = end_processes(self._find, timeout_s, self._strike)
        failed += self._run_commands("cleanup_commands")
        if not left:
            scrub(Path(self._spec["log_path"]), self._spec.get("secrets") or [])
        _report({"left": left, "failed": failed})
        if left or failed:
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
        while not self._asked and not self._exited and self._has_owner():
            for fd, _ in watched.poll(_WATCH_S * 1000):
                said = os.read(fd, 4096)
                if not said and not self._kept:
                    return
                if not said:
                    watched.unregister(fd)
                elif fd == 0:
                    self._floor = 0  # ready: what it needs is allocated
                    if b"keep" in said:
                        self._keep()
            self._reap()
            if self._floor and self._is_short_of_memory():
                return
            if time.monotonic() - recorded_at > _RECORD_S:
                self._record([[e.pid, e.start] for e in descendants(os.getpid(), read_table())])
                recorded_at = time.monotonic()

    def _has_owner(self) -> bool:
        return self._kept or os.getppid() == self._spec["parent_pid"]

    def _keep(self) -> None:
        self._kept, self._recorded = True, []
        self._record([[e.pid, e.start] for e in descendants(os.getpid(), read_table())])
        _report({"kept": True})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                self._exited = code != 0 or not self._spec.get("stays")
                _report({"exit": code})

    def _is_short_of_memory(self) -> bool:
        figures = read_memory()
        if figures is None or figures["MemAvailable"] >= self._floor:
            return False
        _report({"memory": {**figures, "floor": self._floor}})
        return True

    def _run_commands(self, key: str) -> list[str]:
        """Run commands one after the other; return the names of those that failed."""
        return run_commands(self._spec.get(key) or [], self._spec)

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
            "kept": self._kept,
            "name": Path(spec["argv"][0]).name,
            "log_path": spec["log_path"],
            "cwd": spec["cwd"],
            "stop_timeout_s": spec["stop_timeout_s"],
            "stop_commands": spec.get("stop_commands") or [],
            "cleanup_commands": spec.get("cleanup_commands") or [],
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
    if sys.platform != "linux":
        raise SystemExit("the supervisor needs Linux: /proc and a child subreaper")
    raise SystemExit(Supervisor(_read_spec()).run())
