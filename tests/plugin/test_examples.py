"""The examples are suites that a user copies: each is run for its verdicts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from suite_runner import PYTEST

EXAMPLES = Path(__file__).parents[2] / "conftest_examples"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    command = [*PYTEST, "--sparkperf", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False
    )


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
