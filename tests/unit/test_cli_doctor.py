from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.bundle import RecordingRun, ReplayedRun
from pytest_sparkperf.adapters.command import Answer
from pytest_sparkperf.adapters.lock import MachineLock
from pytest_sparkperf.adapters.preflight import Preflight
from pytest_sparkperf.cli.doctor import main

DATA = Path(__file__).parents[1] / "data" / "machine"
UUID = "GPU-12345678-1234-1234-1234-123456789abc"


def spark(apps: bytes = b"") -> RecordingRun:
    def run(arguments: Sequence[str], _: float) -> Answer:
        said = " ".join(arguments)
        if "--query-gpu" in said:
            return Answer(0, (DATA / "E02_query_gb10.csv").read_bytes())
        if "--query-compute-apps" in said:
            return Answer(0, apps)
        return Answer(0, f"Driver Version: 580.1\nGPU 0: NVIDIA GB10 (UUID: {UUID})\n".encode())

    return RecordingRun(run)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """What a Spark with a foreign server on its GPU shows."""
    proc = tmp_path / "spark" / "proc"
    proc.mkdir(parents=True)
    (proc / "meminfo").write_text(
        "MemTotal: 127600000 kB\nMemFree: 4000000 kB\nMemAvailable: 20000000 kB\nCached: 15000000 kB\n"
    )
    (proc / "loadavg").write_text("0.5 0.4 0.3 1/900 77\n")
    (proc / "cpuinfo").write_text("model name : Cortex-X925\nSerial\t\t: 10000000abcdef\n")
    recording = spark((DATA / "D04_compute_apps.csv").read_bytes())
    Preflight(recording, tmp_path / "spark").read()
    recording.write(tmp_path / "bundle", tmp_path / "spark")
    return tmp_path / "bundle"


def test_a_bundle_is_judged_elsewhere_as_it_was_there(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--from", str(bundle)]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "gpu       NVIDIA GB10, driver 580.173.02, 35 C, 208 MHz, 11.42 W, 0% busy"
    assert lines[2] == (
        "memory    shared by CPU and GPU, 19.1 GiB of 121.7 GiB available (3.8 GiB free, 14.3 GiB page "
        "cache, 0.0 GiB of swap in use); a start is ended below 24.0 GiB"
    )
    assert lines[3] == f"load      0.5 on {os.cpu_count()} CPUs"
    assert lines[4] == "process   pid 396079 (VLLM::EngineCore, 101.8 GiB) on the GPU"
    assert lines[-1].startswith(
        "NOT FIT   other processes use the GPU: pid 396079 (VLLM::EngineCore, 101.8 GiB)"
    )


def test_nothing_that_names_the_machine_is_kept(bundle: Path) -> None:
    texts = [path.read_text() for path in bundle.rglob("*") if path.is_file()]

    assert not any(UUID in text or "10000000abcdef" in text for text in texts)
    assert any("(UUID: (not kept)" in text for text in texts)
    assert any("Serial\t\t: (not kept)" in text for text in texts)


def test_the_page_can_be_read_by_programs(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", str(bundle), "--json"]) == 1

    facts = json.loads(capsys.readouterr().out)
    assert facts["fit"] is False
    assert [one["what"] for one in facts["findings"]] == ["gpu_processes"]
    assert facts["machine"]["memory"]["available"] == 20_000_000 * 1024


def test_this_machine_is_read_and_its_bundle_can_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKPERF_LOCK_DIR", str(tmp_path / "lock"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    status = main(["--bundle", str(tmp_path / "b")])

    assert status in (0, 1)
    assert (tmp_path / "b" / "root" / "proc" / "meminfo").exists()
    assert main(["--from", str(tmp_path / "b")]) == status
    first, second = capsys.readouterr().out.split("machine   ")[1:]
    assert first.splitlines()[0] == second.splitlines()[0]


def test_a_run_that_measures_now_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARKPERF_LOCK_DIR", str(tmp_path / "lock"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock = MachineLock(tmp_path / "lock")
    lock.acquire()
    try:
        assert main([]) == 1
    finally:
        lock.release()

    assert f"(pid {os.getpid()}, since " in capsys.readouterr().out


def test_a_folder_without_a_bundle_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"sparkperf doctor: {str(tmp_path)!r} holds no bundle; name a folder that `sparkperf doctor "
        "--bundle` wrote\n"
    )
    (tmp_path / "file").write_text("")
    assert main(["--bundle", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == (
        f"sparkperf doctor: {str(tmp_path / 'file')!r} cannot hold the bundle: file exists; name another "
        "folder\n"
    )


def test_a_program_that_was_not_asked_then_says_nothing_now() -> None:
    assert ReplayedRun({})(("x",), 1.0).problem == "this program was not asked when the bundle was written"
