"""A machine is locked, checked and given back around the servers that are started on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.cleanup import Cleaned
from pytest_sparkperf.adapters.command import Answer
from pytest_sparkperf.adapters.lock import MachineLock, read_holder
from pytest_sparkperf.adapters.meminfo import MemoryReader
from pytest_sparkperf.adapters.preflight import Preflight
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.memory import GIB, MemInfo
from pytest_sparkperf.core.preflight import MachineState
from pytest_sparkperf.core.server_memory import ServerMemory
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.starter import Machine, Starter, memory_floor, needs_machine

FAKE = Path(__file__).parents[1] / "data" / "servers" / "fake_vllm.py"
ROOT = Path(__file__).parents[2]
MEMINFO = "MemTotal: 127600000 kB\nMemFree: {free} kB\nMemAvailable: {free} kB\n"


def no_gpu(*_: object) -> Answer:
    return Answer(None, absent=True, problem="no nvidia-smi")


class Place:
    """A machine of one's own in a folder, and a starter that uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.cleaned = Cleaned()
        self.sleeps: list[float] = []
        (folder / "proc").mkdir()
        self.show_memory(100 * GIB)
        executable = folder / "vllm"
        executable.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$@"\n')
        executable.chmod(0o755)
        target = Target("tiny", "vllm", executable=str(executable), model="m", ready_timeout_s=60)
        self.variant = make_variant(target, k=0)
        machine = Machine(
            folder / "lock", 60.0, Preflight(no_gpu, folder), MemoryReader(folder), lambda: self.cleaned
        )
        self.starter = Starter(lambda: folder / "logs", Surroundings(self.said.append), machine)

    def show_memory(self, free: int) -> None:
        (self.folder / "proc/meminfo").write_text(MEMINFO.format(free=free // 1024))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Place(tmp_path)
    yield made
    made.starter.close()


def test_the_lock_is_taken_at_the_first_real_start_and_held_to_the_end(place: Place) -> None:
    holder = place.folder / "lock" / "holder.json"
    place.starter.start(make_variant(Target("sim", "sim"))).stop()
    assert not holder.exists()

    place.starter.start(place.variant).stop()
    assert holder.exists()
    place.starter.start(place.variant).stop()
    assert holder.exists()

    place.starter.close()
    assert not holder.exists()


@pytest.mark.parametrize(
    ("target", "needed"),
    [
        (Target("s", "sim"), False),
        (Target("v", "vllm", model="m"), True),
        (Target("a", "attach", urls=((None, "http://127.0.0.1:8000"),)), True),
        (Target("a", "attach", urls=((None, "http://localhost:8000"),)), True),
        (Target("a", "attach", urls=((None, "http://10.0.0.5:8000"),)), False),
    ],
)
def test_who_needs_the_machine_to_himself(target: Target, needed: bool) -> None:
    assert needs_machine(make_variant(target, k=0)) is needed


RUN = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_starter import Place
place = Place(Path(sys.argv[1]))
outside, machine = place.starter.outside, place.starter.machine
place.starter.machine = replace(machine, lock_folder=Path(sys.argv[3]))
place.starter.outside = replace(outside, progress=lambda text: print(text, flush=True))
server = place.starter.start(place.variant)
print("measures", flush=True)
sys.stdin.readline()
server.stop()
place.starter.close()
print("done", flush=True)
"""


@pytest.fixture
def another_run(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(name: str) -> subprocess.Popen[str]:
        folder = tmp_path / name
        folder.mkdir()
        command = [sys.executable, "-c", RUN, str(folder), str(Path(__file__).parent), str(tmp_path / "both")]
        started.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_runs_at_once_the_second_waits_for_the_first_says_so_and_then_runs(
    another_run: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    first = another_run("first")
    assert line(first) == "measures"
    second = another_run("second")

    waiting = line(second)
    assert waiting.startswith("this machine measures for ")
    assert f"(pid {first.pid}, since " in waiting
    assert waiting.endswith("; waiting for it to end")

    assert first.stdin is not None
    first.stdin.write("\n")
    first.stdin.flush()
    assert line(first) == "done"
    while (said := line(second)).startswith("this machine measures for "):
        pass
    assert said == "measures"
    holder = read_holder(tmp_path / "both" / "holder.json")
    assert holder is not None
    assert holder.pid == second.pid


def test_a_run_that_was_killed_leaves_no_lock_and_is_named_by_the_next(
    another_run: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    first = another_run("first")
    assert line(first) == "measures"
    first.send_signal(signal.SIGKILL)
    first.wait()

    second = another_run("second")

    said = line(second)
    assert said.startswith("the run of ")
    assert f"(pid {first.pid}, since " in said
    assert said.endswith(") ended without giving the machine back")
    assert line(second) == "measures"


def test_what_an_earlier_run_left_and_will_not_go_refuses_the_start(place: Place) -> None:
    place.cleaned = Cleaned(left=["vllm: pid 7"])

    with pytest.raises(ServerError) as caught:
        place.starter.start(place.variant)

    assert str(caught.value) == (
        "an earlier run left what does not end: vllm: pid 7; end it, or restart the machine."
    )


def test_an_unfit_machine_starts_nothing(place: Place) -> None:
    place.starter.machine = replace(
        place.starter.machine, preflight=Preflight(lambda *_: Answer(1, stderr=b"no devices"), place.folder)
    )

    with pytest.raises(ServerError, match="not fit to be measured on: nvidia-smi does not show the GPUs"):
        place.starter.start(place.variant)

    assert not (place.folder / "logs").exists()


def test_memory_of_a_stopped_server_is_waited_for_before_the_next_starts(place: Place) -> None:
    def sleep(_: float) -> None:
        place.sleeps.append(_)
        place.show_memory(100 * GIB)

    server = place.starter.start(place.variant)
    server.stop()
    place.show_memory(40 * GIB)
    place.starter.outside = Surroundings(place.said.append, sleep=sleep)

    place.starter.start(place.variant).stop()

    assert len(place.sleeps) >= 1
    found = place.starter.close()
    assert found is not None
    assert found.missing == 0


def test_memory_that_does_not_come_back_is_told_at_the_end(place: Place) -> None:
    place.starter.start(place.variant).stop()
    place.show_memory(40 * GIB)
    now = iter(range(0, 10_000, 5))
    place.starter.outside = Surroundings(place.said.append, lambda: float(next(now)), lambda _: None)

    found = place.starter.close()

    assert found is not None
    assert found.missing == 60 * GIB
    assert place.said == [
        (
            "60.0 GiB of memory did not come back within 15 s after the servers were stopped; see `sparkperf "
            "doctor`"
        )
    ]


def test_the_floor_of_a_start_is_the_target_s_or_the_machine_s() -> None:
    spark = MachineState(memory=MemInfo(*[int(121.69 * GIB)] * 3))
    own: Variant = make_variant(Target("v", "vllm", model="m", memory_floor_gib=3.5), k=0)

    assert memory_floor(own, spark) == int(3.5 * GIB)
    assert memory_floor(replace(own, memory_floor_gib=None), spark) == 2 * GIB
    assert memory_floor(replace(own, memory_floor_gib=None), MachineState()) == 0


def test_the_pool_is_told_of_this_machine_s_memory(place: Place) -> None:
    room = place.starter.room(1)

    assert (room.max_resident, room.available(), room.reserve) == (1, 100 * GIB, 2 * GIB)


def test_a_lock_that_stays_held_fails_the_start(place: Place) -> None:
    other = MachineLock(place.folder / "lock")
    other.acquire()
    place.starter.machine = replace(place.starter.machine, lock_timeout_s=0.0)
    try:
        with pytest.raises(ServerError, match=r"this machine still measures for .* after 0 s of waiting"):
            place.starter.start(place.variant)
    finally:
        other.release()


def test_what_a_server_holds_is_what_was_free_before_while_it_is_alone(place: Place) -> None:
    server = place.starter.start(place.variant)
    place.show_memory(60 * GIB)

    assert place.starter.memory_of(server) == ServerMemory(40.0)

    other = place.starter.start(replace(place.variant, label="second"))
    assert place.starter.memory_of(server) is None
    other.stop()
    assert place.starter.memory_of(server) == ServerMemory(40.0)
    server.stop()
    assert place.starter.memory_of(server) is None
    place.show_memory(100 * GIB)  # all of it is back


def test_what_a_server_holds_of_a_gpu_with_memory_of_its_own_is_its_processes(place: Place) -> None:
    server = place.starter.start(place.variant)
    assert server.process is not None
    pid = server.process.pid
    apps = f"pid, process_name, used_gpu_memory [MiB]\n{pid}, python, 2048 MiB\n1, other, 512 MiB\n".encode()
    gpu = b"name, memory.total [MiB]\nNVIDIA H200, 143771 MiB\n"

    def run(words: object, _: float) -> Answer:
        return Answer(0, apps if "compute-apps" in str(words) else gpu)

    place.starter.machine = replace(place.starter.machine, preflight=Preflight(run, place.folder))

    assert place.starter.memory_of(server) == ServerMemory(2.0)
    server.stop()


def test_servers_of_ours_that_are_up_count_as_ours(place: Place) -> None:
    first = place.starter.start(place.variant)
    assert first.process is not None
    apps = f"pid, process_name, used_gpu_memory [MiB]\n{first.process.pid}, python, 5 MiB\n".encode()
    gpu = b"name, memory.total [MiB]\nNVIDIA GB10, [N/A]\n"

    def run(words: object, _: float) -> Answer:
        return Answer(0, apps if "compute-apps" in str(words) else gpu)

    place.starter.machine = replace(place.starter.machine, preflight=Preflight(run, place.folder))
    place.show_memory(125 * 10**9)
    # The floor would be that of the machine described here, and what is free that of the machine of the test.
    options = FrozenMap({"gpu-memory-utilization": 0.3})
    place.variant = replace(place.variant, args=options, memory_floor_gib=0.0, label="second")

    second = place.starter.start(place.variant)

    assert first.alive()
    second.stop()
    first.stop()
