"""The machine's lock between processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.lock import Holder, MachineLock, lock_folder, read_holder
from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.core.errors import ConfigError, ServerError

HOLD = """
import sys
from pathlib import Path
from pytest_sparkperf.adapters.lock import MachineLock
lock = MachineLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
lock.release()
print("released", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_run(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def hold() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def test_a_free_lock_is_taken_at_once_and_says_who_holds_it(tmp_path: Path) -> None:
    lock = MachineLock(tmp_path / "lock")

    assert lock.acquire() is None
    assert lock.held
    holder = read_holder(tmp_path / "lock" / "holder.json")
    assert holder is not None
    assert (holder.pid, holder.folder) == (os.getpid(), str(Path.cwd()))
    lock.release()
    lock.release()
    assert not (tmp_path / "lock" / "holder.json").exists()


def test_every_user_may_use_the_lock_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock = MachineLock(tmp_path / "lock")
        lock.acquire()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "lock", *(tmp_path / "lock").iterdir())]

    assert sorted(modes) == [0o666, 0o666, 0o777]
    lock.release()


def test_a_held_lock_is_waited_for_and_the_wait_says_for_whom(
    tmp_path: Path, other_run: Callable[[], subprocess.Popen[str]]
) -> None:
    holder = other_run()
    said: list[str] = []

    def let_go(_: float) -> None:
        assert holder.stdin is not None
        if not holder.stdin.closed:
            holder.stdin.close()
        time.sleep(0.01)

    lock = MachineLock(tmp_path / "lock", Surroundings(said.append, sleep=let_go))

    assert lock.acquire(60) is None
    assert len(said) == 1
    assert f"(pid {holder.pid}, since 2" in said[0]
    assert said[0].startswith("this machine measures for ")
    assert said[0].endswith(f", in {Path.cwd()}); waiting for it to end")
    lock.release()


def test_a_lock_that_stays_held_ends_the_wait_with_its_holder(
    tmp_path: Path, other_run: Callable[[], subprocess.Popen[str]]
) -> None:
    other_run()
    who = read_holder(tmp_path / "lock" / "holder.json")

    with pytest.raises(ServerError) as caught:
        MachineLock(tmp_path / "lock").acquire(0.0)

    assert str(caught.value) == (
        f"this machine still measures for {who} after 0 s of waiting; wait for that run to end, or raise "
        "--sparkperf-lock-timeout."
    )


def test_a_holder_that_was_killed_is_noticed(
    tmp_path: Path, other_run: Callable[[], subprocess.Popen[str]]
) -> None:
    holder = other_run()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = MachineLock(tmp_path / "lock")

    died = lock.acquire()

    assert died is not None
    assert died.pid == holder.pid
    lock.release()


def test_what_others_wrote_about_themselves_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "holder.json"
    said = {"user": "\x1b[31mu\n::error::", "host": "h", "pid": 1, "since": "now", "folder": "/f" * 500}
    path.write_text(json.dumps(said))

    holder = read_holder(path)

    assert holder == Holder("u ::error::", "h", 1, "now", ("/f" * 500)[:200])
    assert str(holder).startswith("u ::error:: on h (pid 1, since now, in /f")
    path.write_text("[]")
    assert read_holder(path) is None


def test_a_folder_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError) as caught:
        MachineLock(tmp_path / "file" / "lock").acquire()

    assert str(caught.value) == (
        f"{str(tmp_path / 'file' / 'lock')!r} cannot hold the lock of this machine (Not a directory); set "
        "SPARKPERF_LOCK_DIR to a folder that everybody who measures here can write."
    )


def test_the_folder_is_one_for_the_machine_unless_the_user_names_one() -> None:
    assert lock_folder({}) == Path("/run/lock/sparkperf")
    assert lock_folder({"SPARKPERF_LOCK_DIR": "/x"}) == Path("/x")
