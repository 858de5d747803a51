from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_servers import WAIT_S, Parent, entry, gone, start_hostile, wait_until_gone

from pytest_sparkperf.adapters.leftovers import Ended, find_leftovers, record_dir
from pytest_sparkperf.adapters.process import SupervisedProcess
from pytest_sparkperf.core.errors import ServerError


def test_both_supervisor_and_parent_killed_leaves_a_record_that_ends_the_rest(
    start_parent: Callable[[str], Parent], record_folder: Path
) -> None:
    started = start_parent("wait")
    os.kill(started.supervisor.pid, signal.SIGKILL)
    started.popen.kill()
    started.popen.wait(WAIT_S)
    main, daemon = started.server
    wait_until_gone([main, started.supervisor])
    assert not gone([daemon])

    (leftover,) = find_leftovers(record_folder)
    assert [e.pid for e in leftover.processes()] == [daemon.pid]
    assert leftover.name == Path(sys.executable).name
    assert leftover.end(grace_s=0.2) == Ended()

    assert gone([daemon])
    assert find_leftovers(record_folder) == []
    assert list(record_folder.iterdir()) == []


def test_a_record_whose_supervisor_lives_is_no_leftover(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, record_folder: Path
) -> None:
    hostile = start_hostile(start_process, tmp_path)
    (path,) = record_folder.iterdir()
    record = json.loads(path.read_text())
    assert record["server"] == [hostile.main.pid, hostile.main.start]
    assert record["supervisor"] == [
        hostile.process.supervisor_pid,
        entry(hostile.process.supervisor_pid).start,
    ]
    assert record["uid"] == os.getuid()
    assert find_leftovers(record_folder) == []


@pytest.mark.parametrize("change", [{"uid": -1}, {"boot_id": "another boot"}])
def test_records_of_others_and_of_earlier_boots_are_passed_over(
    record_folder: Path, change: dict[str, object]
) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record = {
        "uid": os.getuid(),
        "boot_id": boot_id,
        "supervisor": None,
        "server": [1, 2],
        "descendants": [],
        "name": "vllm",
        "nonce": "0",
        "log_path": "log",
    }
    (record_folder / "a.json").write_text(json.dumps(record))
    assert len(find_leftovers(record_folder)) == 1
    (record_folder / "a.json").write_text(json.dumps(record | change))
    (record_folder / "b.json").write_text("{ cut")
    assert find_leftovers(record_folder) == []


def test_a_recorded_pid_that_was_reused_is_left_alone(record_folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        record = {"uid": os.getuid(), "boot_id": boot_id, "supervisor": None, "name": "vllm", "nonce": "0"}
        reused = [bystander.pid, entry(bystander.pid).start - 1]
        (record_folder / "a.json").write_text(
            json.dumps(record | {"server": reused, "descendants": [reused]})
        )
        (leftover,) = find_leftovers(record_folder)
        assert leftover.processes() == []
        assert leftover.end() == Ended()
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("log", [None, "pipe"])
def test_ending_a_leftover_leaves_devices_and_pipes_what_they_are(
    record_folder: Path, tmp_path: Path, log: str | None
) -> None:
    os.mkfifo(tmp_path / "pipe")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record: dict[str, object] = {"uid": os.getuid(), "boot_id": boot_id, "supervisor": None}
    record |= {"name": "vllm", "nonce": "0", "server": None, "descendants": []}
    if log is not None:
        record["log_path"] = str(tmp_path / log)
    (record_folder / "a.json").write_text(json.dumps(record))

    (leftover,) = find_leftovers(record_folder)

    assert leftover.end() == Ended()
    assert (tmp_path / "pipe").is_fifo()
    assert Path(os.devnull).is_char_device()


def test_the_folder_of_records_must_be_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = record_dir()
    assert folder == tmp_path / f"sparkperf-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(ServerError) as caught:
        record_dir()
    assert str(caught.value) == (
        f"{str(folder)!r} holds the records of started servers and must be a folder that only you can write; "
        "remove it, or set TMPDIR to a folder of your own."
    )
