"""A comparison of servers that do not fit beside each other is made by restart."""

from __future__ import annotations

import pytest
from suite_runner import Suite

YAML = """
version: 1
default_target: sim
max_resident: 1
targets:
  sim:
    launch: sim
    args: {slowdown: 0.3, jit-s: 0}
"""


@pytest.fixture
def one_at_a_time(suite: Suite) -> Suite:
    suite.yaml(YAML)
    return suite


@pytest.mark.slow
def test_servers_are_started_in_turn_and_judged(one_at_a_time: Suite) -> None:
    one_at_a_time.pytester.makepyfile(
        """
from pytest_sparkperf import sparkperf

@sparkperf(k=3, against={"k": 0}, min_speedup=1.05, prompt_tokens=40, output_tokens=32, max_rounds=3)
def test_it(sparkperf_result):
    assert sparkperf_result.ratio > 1.05
    assert sparkperf_result.server["k"] == 3 and sparkperf_result.against.server["k"] == 0
"""
    )

    result = one_at_a_time.run(attach=False)

    result.assert_outcomes(passed=1)
    how = "A and B were compared by restart, in blocks A B B A with two starts of each"
    result.stdout.fnmatch_lines([f"*PASS min_speedup=1.05: *{how}"])


def test_equal_output_needs_both_at_once(one_at_a_time: Suite) -> None:
    one_at_a_time.pytester.makepyfile(
        """
from pytest_sparkperf import sparkperf

@sparkperf(k=3, against={"k": 0}, same_output=True)
def test_it(): ...
"""
    )

    result = one_at_a_time.run(attach=False)

    result.assert_outcomes(errors=1)
    text = (
        "same_output needs both servers at once, and they do not fit beside each other here: pin their KV "
        "memory (resident: in the target), attach to two that run, or drop same_output"
    )
    result.stdout.fnmatch_lines([text])
