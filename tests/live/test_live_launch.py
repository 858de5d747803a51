"""Real vLLM started by a run: k = 0 and k = 3 side by side, and nothing of them left afterwards."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUITE = """
from pytest_sparkperf import sparkperf

@sparkperf(k=3, against={"k": 0}, min_speedup=2, prompt_tokens=64, output_tokens=512)
def test_mtp_pays(): ...
"""
HANG = """
def test_it(sparkperf_server):
    import pathlib, time
    pathlib.Path("up").write_text(sparkperf_server.url)
    time.sleep(600)
"""
COMMAND = [sys.executable, "-m", "pytest", "--sparkperf", "-p", "no:cacheprovider"]
MARK = "SPARKPERF_LIVE_TEST"


def environment(folder: Path) -> dict[str, str]:
    """Return an environment by which everything that a run starts can be recognised."""
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    return env | {MARK: str(folder)}


def left_of(folder: Path) -> set[int]:
    """Return the processes that the run in this folder started, whoever their parent is now."""
    mark = f"{MARK}={folder}".encode()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def listening(url: str) -> bool:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.fixture
def folder(tmp_path: Path, live_config: Path) -> Path:
    shutil.copy(live_config, tmp_path / "sparkperf.yaml")
    return tmp_path


def test_speedup_that_mtp_does_not_bring_fails_and_nothing_is_left(folder: Path) -> None:
    (folder / "test_mtp.py").write_text(SUITE)

    for _ in range(3):
        done = subprocess.run(
            COMMAND,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if "INCONCLUSIVE" not in done.stdout:  # other work on this machine may leave it open
            break

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "FAIL min_speedup=2: " in done.stdout
    assert "times the speed (interval " in done.stdout
    assert "against tiny k=0" in done.stdout
    urls = set(re.findall(r"http://127\.0\.0\.1:[0-9]+", done.stdout))
    assert len(urls) == 2
    assert not any(map(listening, urls))
    assert left_of(folder) == set()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM], ids=lambda signum: signum.name)
def test_server_of_a_killed_run_is_gone(folder: Path, signum: signal.Signals) -> None:
    (folder / "test_hang.py").write_text(HANG)
    process = subprocess.Popen(COMMAND, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: (folder / "up").exists() or process.poll() is not None, 600)
        assert (folder / "up").exists()
        url = (folder / "up").read_text()
        assert listening(url)
        assert len(left_of(folder)) >= 3  # pytest, the supervisor and the server

        process.send_signal(signum)
        process.wait(60)

        wait_for(lambda: not left_of(folder), 60)
        assert left_of(folder) == set()
        assert not listening(url)
    finally:
        process.kill()


def wait_for(condition: object, timeout_s: float) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
