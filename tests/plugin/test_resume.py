"""A sweep that was broken off goes on where it was, and ends with the table of an unbroken one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from suite_runner import Suite

# 24 cells whose figures follow from their parameters alone; the one at `stop` is never finished.
SWEEP = """
import os
import pytest
from pytest_sparkperf import Result, sparkperf
from pytest_sparkperf.session import Run

class Bench:
    def measure(self, variants, spec, *, gates, test):
        with open("measured", "a") as file:
            file.write(test + "\\n")
        if os.environ.get("STOP") in test:
            raise KeyboardInterrupt
        rate = 50.0 + 10 * spec.k + spec.load.concurrency
        return Result(decode_tok_s=rate, output_tok_s=rate * spec.load.concurrency, rounds=3, simulated=True)

    def done(self, variant): ...
    def close(self): ...

@pytest.fixture(autouse=True)
def bench(monkeypatch):
    monkeypatch.setattr(Run, "_open_bench", lambda self: Bench())

@pytest.mark.parametrize("c", [pytest.param(c, marks=sparkperf(concurrency=c)) for c in (1, 2, 4, 8, 16, 32)])
@pytest.mark.parametrize("k", [pytest.param(k, marks=sparkperf(k=k)) for k in range(4)])
@sparkperf(target="sim")
def test_sweep(k, c): ...
"""
YAML = "version: 1\ntargets:\n  sim: {launch: sim, args: {profile: gb10-paired, time-scale: 5}}\n"


def table(text: str, cells: int = 24) -> list[str]:
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if f": {cells} measurements" in line)
    return lines[start : start + 3 + 2 * cells]


@pytest.fixture
def sweep(suite: Suite) -> Suite:
    suite.yaml(YAML)
    suite.pytester.makepyfile(SWEEP)
    return suite


def test_a_sweep_of_24_cells_goes_on_where_it_was_broken_off(
    sweep: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP", "nowhere")
    unbroken = table(sweep.run(attach=False).stdout.str())
    measured = sweep.pytester.path / "measured"
    order = measured.read_text().splitlines()
    measured.unlink()

    monkeypatch.setenv("STOP", order[10])
    broken = sweep.run("--sparkperf-resume", "kept.jsonl", attach=False)
    assert broken.ret == pytest.ExitCode.INTERRUPTED
    assert len(measured.read_text().splitlines()) == 11
    measured.unlink()

    monkeypatch.setenv("STOP", "nowhere")
    resumed = sweep.run("--sparkperf-resume", "kept.jsonl", attach=False)

    assert measured.read_text().splitlines() == order[10:]
    assert table(resumed.stdout.str()) == unbroken
    assert len(unbroken) == 51
    assert resumed.stdout.str().count("kept from the one before by --sparkperf-resume") == 10


def test_what_a_test_measures_twice_is_two_measurements(
    sweep: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOP", "nowhere")
    body = "def test_twice(sparkperf_measure):\n    for k in (1, 1, 2):\n        sparkperf_measure(k=k)\n"
    sweep.pytester.makepyfile(SWEEP.partition("@pytest.mark.parametrize")[0] + body)

    first = sweep.run("--sparkperf-resume", "kept.jsonl", attach=False)
    second = sweep.run("--sparkperf-resume", "kept.jsonl", attach=False)

    assert len((sweep.pytester.path / "measured").read_text().splitlines()) == 3
    assert table(first.stdout.str(), 3) == table(second.stdout.str(), 3)


def test_a_file_of_something_else_is_a_usage_error(sweep: Suite) -> None:
    result = sweep.quick_run("--sparkperf-resume", "sparkperf.yaml")

    path = str(sweep.pytester.path / "sparkperf.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --sparkperf-resume: {path!r} is not a file that --sparkperf-resume has written; *"]
    )


def test_nothing_is_resumed_in_ci(sweep: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    result = sweep.quick_run("--sparkperf-resume", "kept.jsonl")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = (
        "ERROR: --sparkperf-resume=kept.jsonl is refused with CI set, where gates must measure and not read "
        "what somebody measured before; leave it out"
    )
    result.stderr.fnmatch_lines([text])


REAL = """
import pytest
from pytest_sparkperf import sparkperf

@pytest.mark.parametrize("c", [pytest.param(c, marks=sparkperf(concurrency=c)) for c in (1, 2, 3, 4, 6, 8)])
@pytest.mark.parametrize("k", [pytest.param(k, marks=sparkperf(k=k)) for k in range(4)])
@sparkperf(target="sim", prompt_tokens=64, output_tokens=48, max_rounds=3)
def test_sweep(k, c): ...
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_killed_sweep_on_the_simulator_resumes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    (pytester.path / "sparkperf.yaml").write_text(YAML)
    pytester.makepyfile(REAL)
    kept = pytester.path / "kept.jsonl"
    command = [sys.executable, "-m", "pytest", "--sparkperf", "--sparkperf-resume", kept.name]
    command += ["-p", "no:cacheprovider", "-p", "no:asyncio"]
    started = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL, env=dict(os.environ))
    while len(lines_of(kept)) < 8:
        assert started.poll() is None
        time.sleep(0.05)
    started.send_signal(signal.SIGKILL)
    started.wait()
    before = lines_of(kept)

    done = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)

    assert 8 <= len(before) < 24
    assert lines_of(kept)[: len(before)] == before
    rows = table(done.stdout)[2:26]
    assert [row.split()[1:3] for row in rows] == [
        [str(k), str(c)] for k in range(4) for c in (1, 2, 3, 4, 6, 8)
    ]
    rates = {(row.split()[1], row.split()[2]): float(row.split()[4]) for row in rows if row.split()[4] != "-"}
    assert rates["0", "8"] > 2 * rates["0", "1"]
    assert len(rates) >= 20  # a cell that never became steady beside other load has none


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
