"""Real vLLM started by a run: k = 0 and k = 3 side by side, and nothing of them left afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUITE = """
from pytest_sparkperf import sparkperf

@sparkperf(k=3, against={"k": 0}, min_speedup=1.2, prompt_tokens=64, output_tokens=32)
def test_mtp_pays(): ...
"""
HANG = """
from pytest_sparkperf import sparkperf

@sparkperf(min_decode=1, prompt_tokens=64, output_tokens=16)
def test_it(sparkperf_server):
    import pathlib, time
    pathlib.Path("up").write_text(sparkperf_server.url)
    time.sleep(600)
"""
NONCE = b"SPARKPERF_NONCE="


def descendants_of_runs() -> set[int]:
    """Return the processes that a supervisor of ours started, whoever their parent is now."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if NONCE in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    command = [sys.executable, "-m", "pytest", "--sparkperf", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.fixture
def folder(tmp_path: Path, live_config: Path) -> Path:
    shutil.copy(live_config, tmp_path / "sparkperf.yaml")
    return tmp_path


def test_speedup_that_mtp_does_not_bring_fails_and_nothing_is_left(folder: Path) -> None:
    before = descendants_of_runs()
    (folder / "test_mtp.py").write_text(SUITE)

    done = run(folder)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "FAIL min_speedup=1.2: " in done.stdout
    assert "times the speed (interval " in done.stdout
    assert "against tiny k=0" in done.stdout
    assert descendants_of_runs() - before == set()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM], ids=lambda signum: signum.name)
def test_server_of_a_killed_run_is_gone(folder: Path, signum: signal.Signals) -> None:
    before = descendants_of_runs()
    (folder / "test_hang.py").write_text(HANG)
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    command = [sys.executable, "-m", "pytest", "--sparkperf", "-p", "no:cacheprovider"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: (folder / "up").exists() or process.poll() is not None, 600)
        assert (folder / "up").exists()
        assert descendants_of_runs() - before

        process.send_signal(signum)
        process.wait(60)

        wait_for(lambda: not descendants_of_runs() - before, 60)
        assert descendants_of_runs() - before == set()
    finally:
        process.kill()


def wait_for(condition: object, timeout_s: float) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
