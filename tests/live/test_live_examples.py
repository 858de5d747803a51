"""The example of a real server, on a real server: the same suite, attached to the servers of this session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from proven_run import proven_run
from vllm_serve import LiveServers

EXAMPLE = Path(__file__).parents[2] / "conftest_examples" / "vllm_serve"


def test_vllm_serve_example_judges_a_real_server(
    live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True)
    urls = [("--sparkperf-url", f"{k}={live_server(k).url}") for k in (0, 3)]

    result = proven_run(pytester, *[word for url in urls for word in url])

    result.assert_outcomes(passed=3)
    assert "SIMULATED" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*PASS min_decode=10: * tok/s (interval * to *)*"])
