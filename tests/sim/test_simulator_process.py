"""The simulators of these tests end with the tests, even when those are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from pytest_sparkperf.adapters.proctable import read_process

TESTS = Path(__file__).parents[1]
PATIENCE_S = 60
KILLED = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
from simulator_process import SimulatorPool
print(SimulatorPool(Path(sys.argv[1]))("--unpaced").pid, flush=True)
sys.stdin.read()
"""


def test_a_simulator_ends_when_the_tests_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        assert read_process(pid) is not None
        tests.kill()

    deadline_s = time.monotonic() + PATIENCE_S
    while read_process(pid) is not None:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
