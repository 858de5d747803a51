from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.calibration_file import read_calibration
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.cli.calibrate import main
from pytest_sparkperf.core.calibration import Calibration, MetricSpread, calibration_lines
from pytest_sparkperf.core.calibration_schema import to_document
from pytest_sparkperf.core.report import SIMULATED
from pytest_sparkperf.experiment.calibrate import Job, Outside

SPREAD = MetricSpread(0.0052, 0.0031, 0.0149, 0.00015, 0.00035)
CONFIG = """\
version: 1
default_target: small
targets:
  small: {launch: sim, args: {slowdown: 0.08, jit-s: 0}}
  rented: {launch: attach, url: "http://127.0.0.1:1"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sparkperf.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def measured(job: Job, outside: Outside) -> tuple[Calibration, Server]:
    """Stand in for five starts; what it was asked for shows in the figures."""
    outside.say(f"start 1 of {job.launches}: {job.variant.describe()}")
    assert outside.thermometer() is None
    found = Calibration(
        outside.now(), job.variant.describe(), "abc", job.launches, job.rounds, {"decode_tok_s": SPREAD}
    )
    return found, Server("http://127.0.0.1:1", "m", 0, {}, simulated=True)


def test_the_figures_are_stored_under_the_machines_key(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--rounds", "4", "--starts", "7", "-k", "3"], measured)
    out, err = capsys.readouterr()

    stored = read_calibration(folder / ".sparkperf" / "calibration", "simulator")
    assert stored is not None
    assert (status, stored.server, stored.launches, stored.rounds) == (0, "small k=3", 7, 4)
    assert err == "start 1 of 7: small k=3\n"
    assert out.splitlines() == [
        *calibration_lines(stored),
        SIMULATED,
        "-> .sparkperf/calibration/simulator.yaml",
    ]


def test_the_key_can_be_named_and_the_figures_printed_as_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--key", "mine", "--folder", "kept", "--json"], measured)
    printed = json.loads(capsys.readouterr().out)

    stored = read_calibration(folder / "kept", "mine")
    assert stored is not None
    assert status == 0
    assert printed == {
        "key": "mine",
        "file": "kept/mine.yaml",
        "simulated": True,
        "calibration": to_document(stored),
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--target", "nobody"),
            "target 'nobody' is not known; targets are small, rented",
        ),
        (
            ("--target", "rented"),
            (
                "target 'rented' is attached, and a calibration starts its server 5 times: use a target that "
                "is started, such as launch: vllm"
            ),
        ),
        (
            ("--output-tokens", "1"),
            ("--concurrency 1 with --output-tokens 1 has no decode rate: use at least 1 stream and 2 tokens"),
        ),
        (
            ("--config", "other.yaml"),
            "other.yaml: cannot be read: no such file or directory (other.yaml); name a readable file",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    status = main(words)

    assert status == 2
    assert capsys.readouterr().err == f"sparkperf calibrate: {text}\n"
