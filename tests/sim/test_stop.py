"""``sparkperf stop`` ends what is left, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import DockerEngine

from pytest_sparkperf.adapters.cleanup import Cleaned, end_leftovers
from pytest_sparkperf.adapters.docker import owner_word
from pytest_sparkperf.adapters.leftovers import find_leftovers, record_dir
from pytest_sparkperf.adapters.process import ProcessSpec, SupervisedProcess
from pytest_sparkperf.adapters.proctable import read_process
from pytest_sparkperf.cli.stop import main


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return record_dir()


@pytest.fixture
def runaway(tmp_path: Path) -> Iterator[int]:
    """The child of a server that ran away, after the server was killed with its supervisor."""
    code = "/bin/sleep 600 & echo $! > $0; wait"
    spec = ProcessSpec(
        ("/bin/sh", "-c", f"/usr/bin/setsid /bin/sh -c '{code}' {tmp_path / 'pid'} & wait"),
        dict(os.environ),
        tmp_path / "log",
    )
    process = SupervisedProcess.start(spec)
    deadline_s = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    os.kill(process.supervisor_pid, signal.SIGKILL)
    while not find_leftovers():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    yield int((tmp_path / "pid").read_text())
    process.stop()


def test_nothing_left_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "nothing was left\n"


def test_a_server_whose_run_and_supervisor_were_killed_is_ended(
    runaway: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0

    out = capsys.readouterr().out
    assert out.startswith("ended sh (pid")
    assert str(runaway) in out
    assert read_process(runaway) is None
    assert main([]) == 0
    assert capsys.readouterr().out == "nothing was left\n"


def test_what_was_found_can_be_read_by_programs(runaway: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0

    (ended,) = json.loads(capsys.readouterr().out)["ended"]
    assert ended.startswith("sh (pid")
    assert str(runaway) in ended


def test_a_server_whose_supervisor_lives_is_left_alone(tmp_path: Path) -> None:
    process = SupervisedProcess.start(ProcessSpec(("/bin/sleep", "600"), {}, tmp_path / "log"))

    assert end_leftovers() == Cleaned()

    assert process.poll() is None
    process.stop()


def test_a_cleanup_that_fails_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "supervisor": [1 << 22, 1],
        "server": None,
        "descendants": [],
        "uid": os.getuid(),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
        "nonce": "n" * 32,
        "name": "docker",
        "cwd": "/",
        "cleanup_commands": [["/bin/false", "x"]],
    }
    path = record_dir() / "one.json"
    path.write_text(json.dumps(record))

    assert main([]) == 1

    assert capsys.readouterr().err == "sparkperf stop: does not end: docker: '/bin/false x'\n"
    assert path.exists()


def test_a_record_folder_that_others_can_write_is_refused(
    own_records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_records.chmod(0o777)

    assert main([]) == 1

    assert capsys.readouterr().err.startswith(
        f"sparkperf stop: {str(own_records)!r} holds the records of started"
    )


def test_a_container_without_a_record_is_ended_by_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    engine = DockerEngine.start(folder)
    view = owner_word().partition(".")[2].partition(".")[2]
    labels = [f"nonce={'a' * 32}", f"uid={os.getuid()}", f"owner=1.0.{view}"]
    words = [
        "run",
        "--name",
        "n",
        "--env",
        "A=1",
        *(w for one in labels for w in ("--label", f"sparkperf.{one}")),
    ]
    client = subprocess.Popen([engine.program, *words, "vllm:deaf", "serve"], stdout=subprocess.PIPE)
    try:
        deadline_s = time.monotonic() + 60
        while not (ids := engine.running(os.getuid())) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        found = end_leftovers(grace_s=1.0)
        assert found == Cleaned([f"container {ids[0][:12]}"])
        assert engine.running(os.getuid()) == []
    finally:
        engine.stop()
        client.communicate(timeout=60)
