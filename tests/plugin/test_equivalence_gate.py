"""``same_output`` as a gate of a suite: the death of an engine is reported with its log, nothing is left."""

from __future__ import annotations

import pytest
from suite_runner import Suite

SERVERS = """version: 1
targets:
  sound: {launch: sim, args: {time-scale: 20, max-model-len: 16384, enable-auto-tool-choice: true}}
  deadly:
    launch: sim
    args:
      {time-scale: 20, max-model-len: 16384, enable-auto-tool-choice: true, fault: engine_death_on=required}
"""
TEST = """
from pytest_sparkperf import sparkperf

SHORT = {"max_tokens": 16, "thinking": False}

@sparkperf(target="deadly", k=3, against={"target": "sound", "k": 0}, same_output=SHORT, prompt_tokens=64,
           output_tokens=32, max_rounds=3)
def test_it(): ...
"""


@pytest.mark.slow
def test_a_gate_reports_the_death_of_the_engine_and_leaves_nothing_running(suite: Suite) -> None:
    suite.yaml(SERVERS)
    suite.pytester.makepyfile(test_it=TEST)

    result = suite.run(attach=False)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "SIMULATED FAIL same_output: *engine_death*",
            "SIMULATED   plain: PASS 12 of 12 equal, *",
            "SIMULATED   structured output: PASS 5 of 5 equal, *",
            "SIMULATED   forced tool calls: FAIL *",
            "SIMULATED   the server died at tool-required (error_object: *; its log says: RuntimeError: a *",
            "*  | *EngineCore*RuntimeError: a grammar met draft tokens*",
        ]
    )
