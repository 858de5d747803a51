"""``sparkperf metrics`` on files: what it prints and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.cli.metrics import main

DATA = Path(__file__).parent.parent / "data" / "metrics"
BEFORE, AFTER = (str(DATA / f"h200_k3_{name}.prom") for name in ("before", "after"))


def test_json_holds_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    status = main([BEFORE, AFTER, "--json"])

    facts = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (round(facts["acceptance_rate"], 3), round(facts["acceptance_length"], 3)) == (0.648, 2.746)
    assert facts["k"] == 3


def test_text_is_a_line_per_fact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([BEFORE, AFTER]) == 0

    out = capsys.readouterr().out
    assert "acceptance_rate: 0.648\n" in out
    assert "drafts: 528\n" in out


def test_one_file_counts_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([AFTER, "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["since"] == "start"


def test_a_fault_of_the_scrapes_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA / "empty.prom")]) == 1

    assert capsys.readouterr().err == (
        "sparkperf metrics: no spec-decode series: /metrics answered with an empty body\n"
    )


def test_a_file_that_is_not_there_is_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "nothing.prom"

    assert main([str(missing)]) == 2

    assert capsys.readouterr().err == (
        f"sparkperf metrics: {missing}: cannot be read: No such file or directory; save a body with: "
        "curl -s URL/metrics > FILE\n"
    )


def test_a_file_that_is_no_text_is_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "x.prom"
    binary.write_bytes(b"\xff\xfe\x00")

    assert main([str(binary)]) == 2

    assert capsys.readouterr().err == (
        f"sparkperf metrics: {binary}: cannot be read: it is not UTF-8; save a body with: "
        "curl -s URL/metrics > FILE\n"
    )


def test_no_file_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([])

    assert exit_.value.code == 2
    assert "the following arguments are required: BEFORE" in capsys.readouterr().err
