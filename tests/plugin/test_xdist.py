"""Under pytest-xdist a gate runs only where no other worker shares its machine; other tests run anywhere."""

from __future__ import annotations

import pytest
from suite_runner import Suite

SUITE = """
import pytest
from pytest_sparkperf import sparkperf

@sparkperf(name="PASS", min_decode=1)
def test_speed(): ...

def test_fixture(sparkperf_measure): ...

@pytest.mark.skip(reason="not here")
@sparkperf(min_decode=1)
def test_skipped(): ...

def test_plain(): ...
"""
REFUSED = (
    "a performance gate cannot run in the xdist worker {}, where other workers share the machine and spoil "
    "its figures; run gates with -n0, for example: pytest --sparkperf -n0 -m sparkperf"
)


@pytest.mark.parametrize("arguments", [("-n1",), ("--dist=each", "--tx=2*popen")])
def test_gates_are_refused_and_others_run(suite: Suite, arguments: tuple[str, ...]) -> None:
    suite.pytester.makepyfile(test_it=SUITE)

    result = suite.run(*arguments, "-q", attach=False)

    copies = 1 if arguments == ("-n1",) else 2
    result.assert_outcomes(passed=copies, skipped=copies, errors=2 * copies)
    for worker in range(copies):
        assert result.outlines.count(REFUSED.format(f"gw{worker}")) == 2
    assert "= sparkperf =" not in str(result.stdout)


def test_a_worker_alone_on_its_machine_measures_and_the_controller_shows_it(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=SUITE)

    result = suite.run("--dist=each", "--tx=popen")

    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "=* sparkperf =*",
            "[[]gw0[]] test_it.py::test_speed",
            "  SIMULATED PASS min_decode=1: 100.0 tok/s *",
        ]
    )


def test_without_workers_gates_run(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=SUITE)

    suite.quick_run("-n0").assert_outcomes(passed=3, skipped=1)
