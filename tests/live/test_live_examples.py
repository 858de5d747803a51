"""The examples on real servers: the same suites, attached to the servers of this session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from proven_run import proven_run
from vllm_serve import LiveServers

EXAMPLES = Path(__file__).parents[2] / "conftest_examples"


def test_vllm_serve_example_judges_a_real_server(
    live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(EXAMPLES / "vllm_serve", pytester.path, dirs_exist_ok=True)
    urls = [("--sparkperf-url", f"{k}={live_server(k).url}") for k in (0, 3)]

    result = proven_run(pytester, *[word for url in urls for word in url])

    result.assert_outcomes(passed=3)
    assert "SIMULATED" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*PASS min_decode=10: * tok/s (interval * to *)*"])


def test_mtp_equivalence_example_finds_a_real_server_equal(
    live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(EXAMPLES / "mtp_equivalence", pytester.path, dirs_exist_ok=True)
    urls = [("--sparkperf-url", f"{k}={live_server(k).url}") for k in (0, 3)]

    result = proven_run(pytester, *[word for url in urls for word in url])

    result.assert_outcomes(passed=1)
    assert "SIMULATED" not in result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "  PASS same_output: * of * answers equal*",
            "    plain: PASS 12 of 12 equal, off against itself 12 of 12, *",
            "    tool calls: PASS *",
            "    own messages: PASS *",
            "    conversation, warm cache: not judged: *",
        ]
    )
