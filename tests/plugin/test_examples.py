"""The examples are suites that a user copies: each is run for its verdicts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from simulator_process import StartSimulator
from suite_runner import PYTEST

EXAMPLES = Path(__file__).parents[2] / "conftest_examples"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    command = [*PYTEST, "--sparkperf", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False
    )


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / name, folder / name))


@pytest.mark.slow
def test_mtp_equivalence_passes(tmp_path: Path) -> None:
    done = run(copied("mtp_equivalence", tmp_path))

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "\n  SIMULATED PASS same_output: 45 of 45 answers equal\n" in done.stdout
    assert "\n  SIMULATED   own messages: PASS 2 of 2 equal, off against itself 2 of 2, " in done.stdout
    assert "\n  SIMULATED   conversation, warm cache: PASS 7 of 7 equal, " in done.stdout


@pytest.mark.slow
def test_mtp_equivalence_fails_where_drafts_alter_a_tool_call(
    tmp_path: Path, simulator: StartSimulator
) -> None:
    flags = ("--time-scale", "20", "--max-model-len", "16384", "--enable-auto-tool-choice")
    drafts = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}')
    off, on = simulator(*flags).url, simulator(*flags, *drafts, "--fault", "altered_argument").url

    done = run(
        copied("mtp_equivalence", tmp_path), "--sparkperf-url", f"0={off}", "--sparkperf-url", f"3={on}"
    )

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "\nSIMULATED FAIL same_output: " in done.stdout
    assert "\nSIMULATED   own messages: FAIL 1 of 2 equal, off against itself 2 of 2, " in done.stdout
    assert "\nSIMULATED   plain: PASS 12 of 12 equal, " in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mtp_sweep_shows_table_chart_and_peak(tmp_path: Path) -> None:
    folder = copied("mtp_sweep", tmp_path)

    done = run(folder)
    if "INCONCLUSIVE" in done.stdout:  # other work on this machine may leave a k open
        done = run(folder)

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    lines = [line.removeprefix("  SIMULATED ") for line in done.stdout.splitlines()]
    (title,) = [at for at, line in enumerate(lines) if line.split()[:2] == ["k", "decode_tok_s"]]
    rows = [line.split() for line in lines[title + 1 : title + 5]]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    # As published of this model on a GB10: 67.9 tok/s without drafts, 83.7, 93.4 and 106.5 with 1 to 3.
    assert [float(row[1]) for row in rows] == pytest.approx([67.9, 83.7, 93.4, 106.5], rel=0.1)
    assert [row[-1] for row in rows] == ["0.0%", "20.5%", "20.5%", "20.5%"]
    assert lines[title + 5].startswith("k=3 is the fastest, ")
    assert lines[title + 9].startswith(f"k=3 {'#' * 40} ")


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "quickstart", tmp_path / "quickstart"))


@pytest.mark.slow
def test_quickstart_passes(quickstart: Path) -> None:
    done = run(quickstart)

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert " 3 passed in " in done.stdout
    assert done.stdout.count("  SIMULATED PASS min_") == 3


@pytest.mark.slow
def test_quickstart_fails_on_the_slow_target_with_figures(quickstart: Path) -> None:
    done = run(quickstart, "--sparkperf-target", "slow")

    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert " 3 failed in " in done.stdout
    assert done.stdout.count("\nSIMULATED FAIL min_decode=") == 2
    assert "\nSIMULATED FAIL min_output_throughput=" in done.stdout
    assert "tok/s (interval " in done.stdout


@pytest.mark.parametrize("folder", sorted(EXAMPLES.iterdir()), ids=lambda folder: folder.name)
def test_example_is_skipped_with_a_reason_without_the_option(folder: Path) -> None:
    command = [*PYTEST, "-rs"]

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "a performance gate: runs with --sparkperf" in done.stdout
    assert " passed" not in done.stdout
