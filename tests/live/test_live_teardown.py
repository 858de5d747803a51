"""A real vLLM is gone with all its processes, its port and its memory, however its run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import wait_until

from pytest_sparkperf.adapters.leftovers import find_leftovers
from pytest_sparkperf.adapters.meminfo import MemoryReader, await_memory
from pytest_sparkperf.adapters.ports import answers
from pytest_sparkperf.adapters.proctable import ProcessEntry, descendants, read_process, read_table
from pytest_sparkperf.adapters.readiness import Surroundings

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600
RUN = """
import os, sys, time
from pathlib import Path
from pytest_sparkperf.adapters.config_file import read_config
from pytest_sparkperf.adapters.server import start_server
from pytest_sparkperf.core.variant import make_variant
config, folder = Path(sys.argv[1]), Path(sys.argv[2])
target = next(iter(read_config(config).targets.values()))
server = start_server(make_variant(target, k=0), log_dir=folder)
Path(folder, "draft").write_text(f"{server.process.supervisor_pid} {server.url.rpartition(':')[2]}")
Path(folder, "draft").rename(Path(folder, "up"))
sys.stdin.read()
server.stop()
"""


@dataclass(slots=True)
class LiveRun:
    """A process that started a vLLM, and all that runs below it."""

    process: subprocess.Popen[bytes]
    supervisor: int
    port: int
    below: list[ProcessEntry]

    def wait_for_the_end(self) -> None:
        """Wait until none of the processes is left."""
        deadline_s = time.monotonic() + PATIENCE_S
        while left := [
            one.pid for one in self.below if (now := read_process(one.pid)) and now.start == one.start
        ]:
            assert time.monotonic() < deadline_s, f"left: {left}"
            time.sleep(0.1)


@pytest.fixture
def run(live_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveRun]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(live_config), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
    )
    deadline_s = time.monotonic() + PATIENCE_S
    while not (tmp_path / "up").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    supervisor, port = map(int, (tmp_path / "up").read_text().split())
    below = descendants(process.pid, read_table())
    yield LiveRun(process, supervisor, port, below)
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.timeout(PATIENCE_S * 2)
@pytest.mark.parametrize("way", ["end", "sigterm", "kill", "hang", "kill-both"])
def test_a_real_vllm_leaves_nothing(run: LiveRun, way: str) -> None:
    memory = MemoryReader()
    held = memory.available()
    assert held is not None
    assert len(run.below) >= 2
    if way in ("end", "hang"):
        if way == "hang":
            for entry in run.below:
                if entry.pid != run.supervisor:
                    os.kill(entry.pid, signal.SIGSTOP)
        assert run.process.stdin is not None
        run.process.stdin.close()
    elif way == "kill-both":
        os.kill(run.process.pid, signal.SIGSTOP)
        os.kill(run.supervisor, signal.SIGKILL)
        run.process.kill()
        run.process.wait()
        wait_until(lambda: find_leftovers() != [])  # the kernel takes its time to end what it was told to
        for leftover in find_leftovers():
            assert not leftover.end()
    else:
        run.process.send_signal(signal.SIGTERM if way == "sigterm" else signal.SIGKILL)

    run.process.wait(PATIENCE_S)
    run.wait_for_the_end()

    assert not answers(run.port)
    assert find_leftovers() == []
    # A tiny model holds some 2.5 GB; the bound of a return is 1 GiB.
    assert await_memory(held + (1 << 30), memory, Surroundings()).missing == 0
