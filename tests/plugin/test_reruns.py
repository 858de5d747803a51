"""A plugin that runs failed tests again cannot turn a gate's FAIL into a PASS.

Nothing is measured here: each gate finds what the name in its mark says.
"""

from __future__ import annotations

import pytest
from suite_runner import Suite

from pytest_sparkperf.protocol import AGAIN

# What pytest-rerunfailures and flaky do: the same item once more, while it fails.
_RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        if attempt:
            item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if attempt == 2 or not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
# Passes at its second run, as noise may.
_LUCK = """
import pytest
from pathlib import Path
from pytest_sparkperf import sparkperf

def lucky():
    path = Path("second")
    second = path.exists()
    path.touch()
    return second
"""
FIRST = "SIMULATED {} min_decode=100: 100.0 tok/s (interval 95.00 to 105.0); as told"


def rerun(suite: Suite, test: str) -> pytest.RunResult:
    suite.do_not_measure()
    with (suite.pytester.path / "conftest.py").open("a") as file:
        file.write(_RERUNS)
    suite.pytester.makepyfile(test_it=_LUCK + test)
    return suite.quick_run()


@pytest.mark.parametrize("outcome", ["FAIL", "ERROR"])
def test_a_verdict_stands_however_often_the_test_is_run(suite: Suite, outcome: str) -> None:
    result = rerun(suite, f"@sparkperf(name={outcome!r}, min_decode=100)\ndef test_it(): ...\n")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([AGAIN, "first outcome:", FIRST.format(outcome)])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_claim_of_a_body_stands_too(suite: Suite) -> None:
    result = rerun(suite, "@sparkperf(name='PASS', min_decode=100)\ndef test_it(): assert lucky()\n")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([AGAIN, "first outcome:", FIRST.format("PASS")])


def test_a_body_that_measures_by_itself_runs_once(suite: Suite) -> None:
    result = rerun(suite, "def test_it(sparkperf_measure): assert lucky()\n")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([AGAIN])
    assert "first outcome:" not in str(result.stdout)


def test_what_failed_before_it_could_measure_may_be_tried_again(suite: Suite) -> None:
    data = "@pytest.fixture\ndef data():\n    assert lucky()\n"
    result = rerun(suite, f"{data}@sparkperf(name='PASS', min_decode=100)\ndef test_it(data): ...\n")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*= sparkperf =*", "test_it.py::test_it", f"  {FIRST.format('PASS')}"])


def test_other_tests_are_run_again_as_before(suite: Suite) -> None:
    rerun(suite, "def test_it(): assert lucky()\n").assert_outcomes(passed=1)
