"""Starts servers on a machine that is ours for the time: locked, checked, and given back as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pytest_sparkperf.adapters.cleanup import Cleaned, end_leftovers
from pytest_sparkperf.adapters.docker import Docker
from pytest_sparkperf.adapters.lock import DEFAULT_TIMEOUT_S, MachineLock, lock_folder
from pytest_sparkperf.adapters.machine_watch import MachineWatch
from pytest_sparkperf.adapters.meminfo import MemoryReader, MemoryReturn, await_memory
from pytest_sparkperf.adapters.nvidia_smi import NvidiaSmi
from pytest_sparkperf.adapters.preflight import Preflight
from pytest_sparkperf.adapters.process import SupervisedProcess
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.adapters.server import Server, attach_server, start_server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.memory import GIB, gib, start_floor
from pytest_sparkperf.core.preflight import MachineState
from pytest_sparkperf.core.server_memory import ServerMemory, held_on_gpus
from pytest_sparkperf.core.targets import MAX_RESIDENT
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.experiment.pool import Room

_HERE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Machine:
    """How this machine is used: its lock and how long to wait for it, its check, its memory, its cleaning."""

    lock_folder: Path = field(default_factory=lock_folder)
    lock_timeout_s: float = DEFAULT_TIMEOUT_S
    preflight: Preflight = field(default_factory=Preflight)
    memory: MemoryReader = field(default_factory=MemoryReader)
    clean: Callable[[], Cleaned] = end_leftovers


@dataclass(slots=True)
class Starter:
    """Starts and attaches servers. The first real one takes the machine's lock, ``close`` gives it back.

    Before each start what earlier runs left is ended, memory of servers stopped before is waited for, and an
    unfit machine is refused. The simulator and servers elsewhere need none of that.
    """

    log_dir: Callable[[], Path]
    outside: Surroundings = field(default_factory=Surroundings)
    machine: Machine = field(default_factory=Machine)
    _lock: MachineLock | None = None
    _idle: int | None = None
    _started: list[Server] = field(default_factory=list)

    def start(self, variant: Variant) -> Server:
        """Return a running server of the variant; raises ServerError, ConfigError."""
        if needs_machine(variant):
            self._take_machine()
        if variant.launch == "attach":
            return attach_server(variant, outside=self.outside)
        if variant.launch == "sim":
            return start_server(variant, log_dir=self.log_dir(), outside=self.outside)
        floor = self._make_ready(variant)
        server = start_server(variant, log_dir=self.log_dir(), outside=self.outside, memory_floor=floor)
        self._started.append(server)
        return server

    def room(self, max_resident: int = MAX_RESIDENT) -> Room:
        """Return how the pool may use the machine's memory."""
        found = self.machine.memory.read()
        reserve = 0 if found is None else start_floor(found.total, unified=False)
        return Room(max_resident, self.machine.memory.available, reserve)

    def memory_of(self, server: Server) -> ServerMemory | None:
        """Return what an idle server holds; None where it cannot be told from the rest of the machine."""
        if server not in self._started or server.process is None:
            return None
        state = self.machine.preflight.read()
        if state.gpus and not state.is_unified:
            own = {*server.process.pids(), *(_pids_elsewhere(server, server.process) or ())}
            held = held_on_gpus(state.apps, own)
        else:
            # Memory that all share is told apart only while nothing else of ours holds any.
            alone = [one for one in self._started if one.alive()] == [server]
            if not alone or self._idle is None or state.memory is None:
                return None
            held = max(0, self._idle - state.memory.available)
        return None if held is None else ServerMemory.of(held, server.facts)

    def watch(self) -> MachineWatch:
        """Return what looks at this machine while a server on it is measured."""
        smi = NvidiaSmi(self.machine.preflight.run)
        return MachineWatch(
            gpus=smi.moment,
            apps=self.machine.preflight.apps,
            memory=self.machine.memory.read,
            own=self._own_pids,
        )

    def close(self) -> MemoryReturn | None:
        """Give the machine back once the memory of stopped servers is; return what is missing of it.

        May be called twice.
        """
        missing = self._await_memory()
        self._idle = None
        if missing is not None and missing.missing:
            self.outside.progress(
                f"{gib(missing.missing)} of memory did not come back within {missing.waited_s:.0f} s after "
                "the servers were stopped; see `sparkperf doctor`"
            )
        if self._lock is not None:
            self._lock.release()
        return missing

    def _take_machine(self) -> None:
        if self._lock is not None and self._lock.held:
            return
        lock = MachineLock(self.machine.lock_folder, self.outside)
        died = lock.acquire(self.machine.lock_timeout_s)
        self._lock = lock
        if died is not None:
            self.outside.progress(f"the run of {died} ended without giving the machine back")

    def _make_ready(self, variant: Variant) -> int:
        """Make the machine ready for a start; return the memory (bytes) that must stay available."""
        self._started = [server for server in self._started if server.alive()]
        if not self._started:
            left = self.machine.clean().left
            if left:
                raise ServerError(
                    f"an earlier run left what does not end: {'; '.join(left)}; end it, or restart the "
                    "machine."
                )
            self._await_memory()
        state = self.machine.preflight.check(variant, own=self._own_pids(), progress=self.outside.progress)
        if not self._started:
            self._idle = self.machine.memory.available()
        return memory_floor(variant, state)

    def _await_memory(self) -> MemoryReturn | None:
        if self._idle is None or any(server.alive() for server in self._started):
            return None
        return await_memory(self._idle, self.machine.memory, self.outside)

    def _own_pids(self) -> Collection[int] | None:
        """Return the processes of our servers; None where those of one of them are not known."""
        found: set[int] = set()
        for server in self._started:
            if server.process is None:
                continue
            found.update(server.process.pids())
            inside = _pids_elsewhere(server, server.process)
            if inside is None:
                return None
            found.update(inside)
        return found


def _pids_elsewhere(server: Server, process: SupervisedProcess) -> Collection[int] | None:
    """Return the processes of a server that are not below ours: those in a container."""
    if process.stays:
        return None
    return Docker.find("started").pids(process.nonce) if "image" in server.facts else ()


def needs_machine(variant: Variant) -> bool:
    """Say whether measuring the variant needs this machine to itself."""
    if variant.launch == "attach":
        return variant.url is not None and urlsplit(variant.url).hostname in _HERE
    return variant.launch != "sim"


def memory_floor(variant: Variant, state: MachineState) -> int:
    """Return how much memory (bytes) must stay available while the variant starts."""
    if variant.memory_floor_gib is not None:
        return int(variant.memory_floor_gib * GIB)
    return 0 if state.memory is None else start_floor(state.memory.total, unified=state.is_unified)
