from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.command import Answer, run_command


def test_a_command_answers() -> None:
    answer = run_command((sys.executable, "-c", "import sys; print('out'); sys.exit('err')"), 60)

    assert answer == Answer(1, b"out\n", b"err\n")
    assert (answer.text, answer.complaint) == ("out\n", "err")


def test_a_program_that_is_not_there_is_absent() -> None:
    answer = run_command(("no-such-program-anywhere",), 60)

    assert answer == Answer(
        None, problem="there is no program 'no-such-program-anywhere' on PATH", absent=True
    )
    assert answer.complaint == "there is no program 'no-such-program-anywhere' on PATH"


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("")

    assert run_command((str(path),), 60) == Answer(
        None, problem=f"{path} could not be started: permission denied"
    )


def test_a_program_that_hangs_is_ended_with_its_children() -> None:
    sleeps = "import time; time.sleep(600)"
    hangs = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{sleeps}'])"
    begun = time.monotonic()

    answer = run_command((sys.executable, "-c", hangs), 0.5)

    assert answer == Answer(None, problem=f"{sys.executable} gave no answer within 0.5 s")
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(("stdout", "shown"), [(b"said\nlast\n", "last"), (b"", "exit status 3")])
def test_a_complaint_is_found_where_there_is_one(stdout: bytes, shown: str) -> None:
    assert Answer(3, stdout).complaint == shown
