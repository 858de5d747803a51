"""Baselines on real vLLM: three recorded runs judge the next one, and fail a server at half its speed."""

from __future__ import annotations

import re

import pytest
import yaml
from proven_run import proven_run
from slow_proxy import half_speed
from vllm_serve import LiveServers

SUITE = """
from pytest_sparkperf import sparkperf

@sparkperf(k=0, max_slowdown=0.3, prompt_tokens=64, output_tokens=512)
def test_decode(sparkperf_result):
    assert not sparkperf_result.simulated
"""
# The server is attached to, so its target says what it runs on; both addresses are of one machine.
HARDWARE = {"gpu": "none", "count": 1}
RECORDS = 3
# Other work on a test machine may leave a run unsteady, which is then not recorded.
_TRIES = 9
FIGURES = re.compile(
    r"decode_tok_s: (?P<today>[\d.]+) tok/s today, (?P<then>[\d.]+) tok/s in the baseline \(mean of 3 "
)


def targets(**urls: str) -> str:
    """Return a sparkperf.yaml with a target per URL."""
    found = {name: {"launch": "attach", "url": url, "hardware": HARDWARE} for name, url in urls.items()}
    return yaml.safe_dump({"version": 1, "targets": found})


def rates(result: pytest.RunResult) -> tuple[float, float]:
    """Return today's decode rate and the baseline's, as the terminal shows them."""
    found = FIGURES.search(str(result.stdout))
    assert found is not None, str(result.stdout)
    return float(found["today"]), float(found["then"])


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_recorded_runs_judge_the_next_one_and_fail_half_the_speed(
    live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    live = live_server(0)
    pytester.makepyfile(test_it=SUITE)
    with half_speed(live.url) as slow_url:
        (pytester.path / "sparkperf.yaml").write_text(targets(usual=live.url, half=slow_url))
        recorded = 0
        for _ in range(_TRIES):
            run = pytester.runpytest_subprocess(
                "--sparkperf", "-p", "no:cacheprovider", "--sparkperf-target=usual", "--sparkperf-record"
            )
            recorded += "recorded test_it.py::test_decode on none-1x-declared-" in str(run.stdout)
            if recorded == RECORDS:
                break
        assert recorded == RECORDS, str(run.stdout)

        same = proven_run(pytester, "--sparkperf-target=usual")
        half = proven_run(pytester, "--sparkperf-target=half")

    same.assert_outcomes(passed=1)
    today, then = rates(same)
    assert 0.7 < today / then < 1.4
    half.assert_outcomes(failed=1)
    half.stdout.re_match_lines([r"FAIL max_slowdown=0\.3: 0\.\d+ times the speed \(interval .*"])
    today, then = rates(half)
    assert today / then < 0.65
