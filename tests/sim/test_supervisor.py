from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_servers import (
    HOSTILE,
    WAIT_S,
    Parent,
    entry,
    gone,
    noted,
    start_hostile,
    wait_for,
    wait_until_gone,
)

from pytest_sparkperf.adapters.process import ProcessSpec, SupervisedProcess
from pytest_sparkperf.adapters.proctable import read_process
from pytest_sparkperf.core.errors import ServerError


def test_stop_ends_a_daemon_that_changed_its_session_and_ignores_sigterm(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, record_folder: Path
) -> None:
    hostile = start_hostile(start_process, tmp_path)
    assert hostile.process.pid == hostile.main.pid
    assert hostile.process.poll() is None
    assert {hostile.main.pid, hostile.daemon.pid} <= set(hostile.process.pids())
    supervisor = entry(hostile.process.supervisor_pid)

    hostile.process.stop()

    assert gone([hostile.main, hostile.daemon, supervisor])
    assert hostile.process.poll() == -signal.SIGKILL
    assert list(record_folder.iterdir()) == []
    hostile.process.stop()  # a second time is nothing


def test_signals_to_group_and_session_leave_the_daemon_alive(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path
) -> None:
    """The control: what a launcher without supervisor could do does not reach it."""
    hostile = start_hostile(start_process, tmp_path)
    os.killpg(hostile.main.pgid, signal.SIGTERM)
    os.kill(hostile.daemon.pid, signal.SIGTERM)
    assert not gone([hostile.main])
    assert not gone([hostile.daemon])


def test_stop_ends_a_stopped_server(start_process: Callable[..., SupervisedProcess], tmp_path: Path) -> None:
    hostile = start_hostile(start_process, tmp_path)
    for pid in (hostile.main.pid, hostile.daemon.pid):
        os.kill(pid, signal.SIGSTOP)
    hostile.process.stop()
    assert gone([hostile.main, hostile.daemon])


def test_a_stopped_server_still_gets_its_sigterm(start_process: Callable[..., SupervisedProcess]) -> None:
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(5)); print('up', flush=True)"
    process = start_process("-c", f"{code}; time.sleep(60)", stop_timeout_s=WAIT_S)
    wait_for(lambda: process.log_tail() == "up", "the handler")
    os.kill(process.pid, signal.SIGSTOP)
    process.stop()
    assert process.poll() == 5


@pytest.mark.parametrize("way", ["refork", "resession"])
def test_stop_ends_a_server_that_replaces_itself_faster_than_the_process_table_is_read(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, record_folder: Path, way: str
) -> None:
    fifo = tmp_path / "pids.fifo"
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        process = start_process(HOSTILE, str(tmp_path / "pids"), way)
        wait_for(lambda: len(noted(tmp_path / "pids")) == 2, "the daemon's start")
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
        process.stop()
        assert os.read(reading, 1) == b""  # the end of file: the last writer is gone
    finally:
        os.close(reading)
    assert list(record_folder.iterdir()) == []


def test_descendants_end_when_the_server_exits_by_itself(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, record_folder: Path
) -> None:
    process = start_process(HOSTILE, str(tmp_path / "pids"), "die")
    wait_for(lambda: process.poll() is not None, "the exit")
    assert process.poll() == 7
    wait_for(lambda: not list(record_folder.iterdir()), "the supervisor's end")
    assert [pid for pid in noted(tmp_path / "pids") if read_process(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_to_the_supervisor_end_the_server(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, number: signal.Signals
) -> None:
    hostile = start_hostile(start_process, tmp_path)
    os.kill(hostile.process.supervisor_pid, number)
    wait_until_gone([hostile.main, hostile.daemon])
    wait_for(lambda: hostile.process.poll() is not None, "the report")
    hostile.process.stop()


def test_stop_ends_what_a_killed_supervisor_left(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, record_folder: Path
) -> None:
    hostile = start_hostile(start_process, tmp_path)
    os.kill(hostile.process.supervisor_pid, signal.SIGKILL)
    wait_until_gone([hostile.main])  # by PR_SET_PDEATHSIG
    assert not gone([hostile.daemon])
    wait_for(lambda: hostile.process.poll() == -signal.SIGKILL, "the supervisor's end being noticed")

    hostile.process.stop()

    assert gone([hostile.daemon])
    assert list(record_folder.iterdir()) == []


def test_stop_ends_the_server_of_a_hanging_supervisor(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_sparkperf.adapters.process.KILL_TIMEOUT_S", 0.0)
    monkeypatch.setattr("pytest_sparkperf.adapters.process._STOP_MARGIN_S", 0.2)
    hostile = start_hostile(start_process, tmp_path)
    os.kill(hostile.process.supervisor_pid, signal.SIGSTOP)
    hostile.process.stop()
    assert gone([hostile.main, hostile.daemon])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_the_parent_is_killed(
    start_parent: Callable[[str], Parent], record_folder: Path, number: signal.Signals
) -> None:
    started = start_parent("wait")
    started.popen.send_signal(number)
    started.popen.wait(WAIT_S)
    wait_until_gone([*started.server, started.supervisor])
    assert list(record_folder.iterdir()) == []


def test_nothing_is_left_and_stdout_ends_when_the_parent_leaves_by_os_exit(
    start_parent: Callable[[str], Parent],
) -> None:
    started = start_parent("wait")
    started.stdin.write(b"x")
    started.stdin.flush()
    # A CI job reads to the end of this pipe: nothing that was started may hold it.
    assert started.stdout.read() == b""
    assert started.popen.wait(WAIT_S) == 3
    wait_until_gone([*started.server, started.supervisor])


def test_a_forked_child_that_holds_the_pipe_does_not_keep_the_server(
    start_parent: Callable[[str], Parent],
) -> None:
    started = start_parent("fork")
    started.popen.kill()
    started.popen.wait(WAIT_S)
    wait_until_gone([*started.server, started.supervisor])
    assert read_process(started.child) is not None


def test_servers_end_one_by_one_and_a_bystander_of_the_same_command_lives(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    script = HOSTILE
    bystander = subprocess.Popen([sys.executable, script, str(folders[2] / "pids")], start_new_session=True)
    try:
        # The first must not end late because the second, started later, inherited the pipe that keeps it.
        first, second = (start_hostile(start_process, folder) for folder in folders[:2])
        wait_for(lambda: len(noted(folders[2] / "pids")) == 2, "the bystander's daemon")
        first.process.stop()
        assert gone([first.main, first.daemon])
        assert second.process.poll() is None
        assert not gone([second.main])
        second.process.stop()
        assert gone([second.main, second.daemon])
        assert bystander.poll() is None
        assert all(read_process(pid) for pid in noted(folders[2] / "pids"))
    finally:
        for pid in noted(folders[2] / "pids"):
            os.kill(pid, signal.SIGKILL)
        bystander.wait()


def test_the_server_is_first_in_line_when_memory_runs_out(
    start_process: Callable[..., SupervisedProcess],
) -> None:
    process = start_process("-c", "import time; time.sleep(60)")
    assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
    own = Path("/proc/self/oom_score_adj").read_text()
    assert Path(f"/proc/{process.supervisor_pid}/oom_score_adj").read_text() == own


def test_a_file_that_cannot_be_executed_is_told_in_one_sentence(tmp_path: Path, record_folder: Path) -> None:
    spec = ProcessSpec((str(tmp_path),), dict(os.environ), tmp_path / "log", record_dir=record_folder)
    with pytest.raises(ServerError) as caught:
        SupervisedProcess.start(spec)
    assert str(caught.value) == (
        f"{str(tmp_path)!r} could not be started: Permission denied; "
        "check that it is an executable file of this machine."
    )
    assert list(record_folder.iterdir()) == []


def test_a_python_that_cannot_run_the_supervisor_is_told(
    tmp_path: Path, record_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    spec = ProcessSpec(("vllm",), dict(os.environ), tmp_path / "log", record_dir=record_folder)
    with pytest.raises(ServerError) as caught:
        SupervisedProcess.start(spec)
    assert str(caught.value) == (
        f"the supervisor of 'vllm' did not start (see {str(tmp_path / 'log')!r}); "
        "check that '/bin/false' works."
    )


@pytest.mark.slow
def test_processes_that_do_not_end_are_named(
    start_process: Callable[..., SupervisedProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start_process("-c", "pass")
    wait_for(lambda: process.poll() == 0, "the exit")
    with monkeypatch.context() as patch:
        patch.setattr(process, "_reports", {"exit": 0, "left": [20, 11], "end": True})
        with pytest.raises(ServerError) as caught:
            process.stop()
    assert str(caught.value) == (
        f"{sys.executable!r} was stopped, but processes of it do not end: 11, 20; "
        "look at them with ps, a driver may hold them."
    )
