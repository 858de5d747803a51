from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.cli.facts import main

LOGS = Path(__file__).parents[1] / "data" / "logs"


def test_facts_of_a_log_are_printed_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(LOGS / "moe_main_and_draft.log")]) == 0

    out = capsys.readouterr().out
    assert "moe_backend             MARLIN\n" in out
    assert "draft_moe_backend       TRITON\n" in out


def test_facts_of_a_server_with_mtp_hold_its_pooled_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(LOGS / "h200_k3.log"), "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["vllm_version"], facts["k"], facts["kv_cache_tokens"]) == ("0.24.0", 3, [853407])
    # 6,849 of 11,532 tokens over the five intervals of the log.
    assert facts["acceptance_rate"] == 0.5939
    assert facts["jit_kernels"]


def test_a_failed_server_is_a_finding_with_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(LOGS / "moe_rejected.log")]) == 1

    assert capsys.readouterr().err.startswith(
        "sparkperf facts: the server failed: ValueError: NvFp4 MoE backend"
    )


def test_a_log_that_says_nothing_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("hello\n")

    assert main([str(path)]) == 0
    assert capsys.readouterr().out == "no facts\n"
    assert main([str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == (
        f"sparkperf facts: {tmp_path / 'no'}: cannot be read: No such file or directory\n"
    )
