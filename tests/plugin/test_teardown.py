"""Whatever ends a run, its servers are gone: no process, no port, no record, no lock."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from suite_runner import PYTEST

from pytest_sparkperf.adapters.lock import present_holder
from pytest_sparkperf.adapters.proctable import read_process

slow = pytest.mark.slow  # each of these starts processes and waits for their end

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
# A server with a child in a session of its own, as engines have: it must go too.
SERVER = (
    "import os, subprocess, sys\n"
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "open('child', 'w').write(str(child.pid))\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'pytest_sparkperf.sim', *sys.argv[1:]])\n"
)
YAML = """\
version: 1
targets:
  own: {{launch: command, start: ["{python}", "{server}", "m", "--port", "{{port}}", {more}]}}
"""
SUITE = """\
import os, time
from pathlib import Path
import pytest

def note(server):
    process = server.process
    Path("draft").write_text(f"{{process.pid}} {{process.supervisor_pid}} {{server.url.rpartition(':')[2]}}")
    Path("draft").rename("up")

@pytest.fixture
def broken(sparkperf_server):
    note(sparkperf_server)
    raise RuntimeError("setup")

def test_one({fixture}):
    if "{fixture}" == "sparkperf_server":
        note(sparkperf_server)
    {body}

def test_two(sparkperf_server):
    pass
"""


@dataclass(slots=True)
class Tally:
    """How many faults were injected and how many of them left nothing."""

    injected: int = 0
    clean: int = 0


@pytest.fixture(scope="module")
def tally(record_testsuite_property: Callable[[str, object], None]) -> Iterator[Tally]:
    count = Tally()
    yield count
    record_testsuite_property("teardown faults injected", count.injected)
    record_testsuite_property("teardown faults that left something", count.injected - count.clean)


@dataclass(slots=True)
class RunningSuite:
    """A run of pytest whose server is up."""

    process: subprocess.Popen[bytes]
    folder: Path
    pid: int
    supervisor: int
    port: int
    tally: Tally

    def leaves_nothing(self) -> bool:
        """Wait until all of it is gone."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            if not self._left():
                self.tally.clean += 1
                return True
            time.sleep(0.05)
        raise AssertionError(f"left: {self._left()}")

    def _left(self) -> list[str]:
        child = int((self.folder / "child").read_text())
        pids = {"server": self.pid, "its child": child, "supervisor": self.supervisor}
        left = [f"{name} {pid}" for name, pid in pids.items() if read_process(pid) is not None]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                left.append(f"port {self.port}")
        left += [str(path) for path in (self.folder / f"sparkperf-{os.getuid()}").glob("*")]
        holder = present_holder(self.folder / "lock")
        return left + ([str(holder)] if holder else [])


@pytest.fixture
def start(tmp_path: Path, tally: Tally) -> Iterator[Callable[..., RunningSuite]]:
    started: list[subprocess.Popen[bytes]] = []

    def run(
        body: str, *options: str, fixture: str = "sparkperf_server", server: tuple[str, ...] = ()
    ) -> RunningSuite:
        (tmp_path / "server.py").write_text(SERVER)
        (tmp_path / "sparkperf.yaml").write_text(
            YAML.format(
                python=sys.executable,
                server=tmp_path / "server.py",
                more=", ".join(f'"{word}"' for word in ("--unpaced", *server)),
            )
        )
        (tmp_path / "test_it.py").write_text(SUITE.format(body=body, fixture=fixture))
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        environment = {
            **os.environ,
            "TMPDIR": str(tmp_path),
            "SPARKPERF_LOCK_DIR": str(tmp_path / "lock"),
            "PYTHONPATH": str(ROOT),
        }
        environment.pop("CI", None)
        command = [*PYTEST, "--sparkperf", *options]
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        started.append(process)
        deadline_s = time.monotonic() + PATIENCE_S
        while not (tmp_path / "up").exists():
            assert process.poll() is None or (tmp_path / "up").exists(), (tmp_path / "out").read_text()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        pid, supervisor, port = map(int, (tmp_path / "up").read_text().split())
        tally.injected += 1
        return RunningSuite(process, tmp_path, pid, supervisor, port, tally)

    yield run
    for process in started:
        process.kill()
        process.wait()


def stop(suite: RunningSuite) -> subprocess.CompletedProcess[str]:
    """Run ``sparkperf stop`` for what the suite left."""
    code = "import sys; from pytest_sparkperf.cli.stop import main; sys.exit(main([]))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(suite.folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@slow
@pytest.mark.parametrize(
    ("body", "options", "fixture", "status"),
    [
        ("pass", (), "sparkperf_server", pytest.ExitCode.OK),
        ("assert False", (), "sparkperf_server", pytest.ExitCode.TESTS_FAILED),
        ("assert False", ("-x",), "sparkperf_server", pytest.ExitCode.TESTS_FAILED),
        ("pass", ("-x",), "broken", pytest.ExitCode.TESTS_FAILED),
        ("raise KeyboardInterrupt", (), "sparkperf_server", pytest.ExitCode.INTERRUPTED),
        ("pytest.exit('enough', 3)", (), "sparkperf_server", 3),
    ],
    ids=["pass", "failure", "failure-x", "setup-failure", "keyboard-interrupt", "exit"],
)
def test_servers_are_gone_when_a_run_ends_by_itself(
    start: Callable[..., RunningSuite], body: str, options: tuple[str, ...], fixture: str, status: int
) -> None:
    suite = start(body, *options, fixture=fixture)

    assert suite.process.wait(PATIENCE_S) == status, (suite.folder / "out").read_text()
    assert suite.leaves_nothing()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=slow),
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=slow),
        signal.SIGKILL,
    ],
)
def test_servers_are_gone_when_a_signal_ends_the_run(
    start: Callable[..., RunningSuite], number: signal.Signals
) -> None:
    suite = start("time.sleep(600)")

    suite.process.send_signal(number)

    suite.process.wait(PATIENCE_S)
    if number is signal.SIGKILL:
        # Nobody could take the note of the holder away; the lock itself is free.
        assert present_holder(suite.folder / "lock") is None
    assert suite.leaves_nothing()


@slow
def test_a_server_that_ignores_sigterm_is_gone_all_the_same(start: Callable[..., RunningSuite]) -> None:
    suite = start("pass", server=("--fault", "ignore_sigterm"))

    assert suite.process.wait(PATIENCE_S) == pytest.ExitCode.OK, (suite.folder / "out").read_text()
    assert suite.leaves_nothing()


@slow
def test_what_a_kill_of_run_and_supervisor_leaves_is_ended_by_the_next_run(
    start: Callable[..., RunningSuite],
) -> None:
    first = start("time.sleep(600)")
    os.kill(first.process.pid, signal.SIGSTOP)
    os.kill(first.supervisor, signal.SIGKILL)
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(PATIENCE_S)
    child = (first.folder / "child").read_text()
    assert read_process(int(child)) is not None
    (first.folder / "up").unlink()

    second = start("pass")

    assert second.process.wait(PATIENCE_S) == pytest.ExitCode.OK, (first.folder / "out").read_text()
    assert read_process(int(child)) is None
    assert (second.leaves_nothing(), first.leaves_nothing()) == (True, True)


@slow
def test_what_a_kill_of_run_and_supervisor_leaves_is_ended_by_stop(
    start: Callable[..., RunningSuite],
) -> None:
    suite = start("time.sleep(600)")
    os.kill(suite.process.pid, signal.SIGSTOP)
    os.kill(suite.supervisor, signal.SIGKILL)
    os.kill(suite.process.pid, signal.SIGKILL)
    suite.process.wait(PATIENCE_S)
    child = int((suite.folder / "child").read_text())
    assert read_process(child) is not None

    done = stop(suite)

    assert (done.returncode, done.stderr) == (0, "")
    assert str(child) in done.stdout
    assert suite.leaves_nothing()


def test_servers_stay_up_where_that_is_asked_for_until_sparkperf_stop(
    start: Callable[..., RunningSuite],
) -> None:
    suite = start("pass", "--sparkperf-keep-servers")

    assert suite.process.wait(PATIENCE_S) == pytest.ExitCode.OK
    out, url = (suite.folder / "out").read_text(), f"http://127.0.0.1:{suite.port}"
    told = (
        f"sparkperf: server 'own' stays up at {url}: attach to it with --sparkperf-url 0={url}, end it with "
        "`sparkperf stop`; the next run that starts a server ends it too"
    )
    assert told in out
    assert read_process(suite.pid) is not None
    assert read_process(suite.supervisor) is not None
    with socket.create_connection(("127.0.0.1", suite.port)):
        pass
    assert stop(suite).returncode == 0
    assert suite.leaves_nothing()
