"""Servers of a run: started as seldom as possible, on a machine of its own, refused where they do not fit."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from suite_runner import PYTEST

ROOT = Path(__file__).parents[2]
FAKE_VLLM = f'#!/bin/sh\nshift\necho start >> starts\nexec {sys.executable} -m pytest_sparkperf.sim "$@"\n'
YAML = """\
version: 1
max_resident: {max_resident}
targets:
  own: {{launch: vllm, executable: ./vllm, model: m{more}}}
"""
PATIENCE_S = 120


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vllm").write_text(FAKE_VLLM)
    (tmp_path / "vllm").chmod(0o755)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("SPARKPERF_LOCK_DIR", str(tmp_path / "lock"))
    return tmp_path


def write(folder: Path, suite: str, *, max_resident: int = 2, more: str = "") -> None:
    (folder / "sparkperf.yaml").write_text(YAML.format(max_resident=max_resident, more=more))
    (folder / "test_it.py").write_text(f"import pytest\nfrom pytest_sparkperf import sparkperf\n{suite}")


def start(*options: str) -> subprocess.Popen[str]:
    command = [*PYTEST, "--sparkperf", "-v", *options]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(*options: str) -> tuple[int, str]:
    process = start(*options)
    out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out


def test_three_variants_over_twelve_shuffled_tests_start_three_servers(folder: Path) -> None:
    # Each gate has its server and is refused by expect= before it measures: this is about starts only.
    ks = [0, 1, 3] * 4
    random.Random(7).shuffle(ks)
    suite = "\n".join(
        f"@sparkperf(k={k}, expect={{'version': 'none'}})\ndef test_{n}(): ...\n" for n, k in enumerate(ks)
    )
    write(folder, suite, max_resident=1)

    status, out = run()

    ran = [int(n) for n in re.findall(r"^test_it.py::test_(\d+) ERROR", out, re.MULTILINE)]
    assert sorted(ran) == list(range(12)), out
    assert [ks[n] for n in ran] == [k for k in dict.fromkeys(ks) for _ in range(4)]
    assert [n for n in ran if ks[n] == 0] == sorted(n for n in ran if ks[n] == 0)
    assert (folder / "starts").read_text().split() == ["start"] * 3
    assert status == 1


def test_of_two_runs_at_once_the_second_says_for_whom_it_waits_and_then_runs(folder: Path) -> None:
    body = "    Path('up').touch()\n    while not Path('go').exists(): time.sleep(0.02)\n"
    write(folder, f"import time\nfrom pathlib import Path\ndef test_one(sparkperf_server):\n{body}")
    first = start()
    deadline_s = time.monotonic() + PATIENCE_S
    while not (folder / "up").exists():
        assert first.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    second = start()
    assert second.stdout is not None
    for line in second.stdout:
        if "this machine measures for" in line:
            break
    (folder / "go").touch()
    rest = second.stdout.read()

    assert f"(pid {first.pid}, since " in line
    assert "1 passed" in rest
    assert "1 passed" in first.communicate(timeout=PATIENCE_S)[0]
    assert second.wait(PATIENCE_S) == 0
    second.stdout.close()


def test_a_lock_that_stays_held_fails_the_gate_after_its_timeout(folder: Path) -> None:
    body = "    Path('up').touch()\n    while not Path('go').exists(): time.sleep(0.02)\n"
    write(folder, f"import time\nfrom pathlib import Path\ndef test_one(sparkperf_server):\n{body}")
    first = start()
    deadline_s = time.monotonic() + PATIENCE_S
    while not (folder / "up").exists():
        assert first.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)

    status, out = run("--sparkperf-lock-timeout=0")

    (folder / "go").touch()
    first.communicate(timeout=PATIENCE_S)
    assert status == 1
    assert f"(pid {first.pid}, since " in out
    assert "after 0 s of waiting; wait for that run to end, or raise --sparkperf-lock-timeout." in out


@pytest.mark.parametrize("written", ["-1", "soon", "inf"])
def test_a_lock_timeout_that_is_none_is_refused(folder: Path, written: str) -> None:
    write(folder, "def test_one(sparkperf_server): ...\n")

    status, out = run(f"--sparkperf-lock-timeout={written}")

    assert status == pytest.ExitCode.USAGE_ERROR
    assert (
        f"--sparkperf-lock-timeout={written}: give the seconds to wait while another run measures on this "
        "machine, such as 3600, or 0 to fail at once"
    ) in out


def test_facts_that_are_not_as_expected_end_a_gate_before_it_measures(folder: Path) -> None:
    write(
        folder,
        "@sparkperf(k=0, expect={'max_num_seqs': 999, 'k': 0}, max_rounds=3)\ndef test_one(): ...\n",
    )

    status, out = run()

    assert status == 1
    assert "is not the server that expect= describes: max_num_seqs: expected 999, but the server has " in out
    assert (folder / "starts").exists()
