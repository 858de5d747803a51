"""Every verdict beside every kind of body: which of the two decides the test, and what is shown of it.

Nothing is measured here: each gate finds what the name in its mark says.
"""

from __future__ import annotations

import re

import pytest
from suite_runner import Suite

SUITE = """
import pytest, unittest
from pytest_sparkperf import sparkperf

pytestmark = sparkperf(name={outcome!r}, min_decode=100)

def test_passes(): ...

def test_fails(): assert 0

def test_skips(): pytest.importorskip("no_such_module")

@pytest.mark.xfail(strict=True)
def test_fails_as_expected(): assert 0

@pytest.mark.xfail(strict=True)
def test_the_gate_is_expected_to_fail(): ...

class TestCase(unittest.TestCase):
    def test_fails(self): self.fail("no")

    def test_passes(self): ...

    def test_skips(self): self.skipTest("not today")
"""
# What comes of each of them, in their order, by the verdict and what is done with INCONCLUSIVE.
P, F, S, X = "PASSED", "FAILED", "SKIPPED", "XFAIL"
EXPECTED = {
    ("PASS", "skip"): (P, F, S, X, F, F, P, S),
    ("FAIL", "skip"): (F, F, F, X, X, F, F, F),
    ("ERROR", "skip"): (F, F, F, F, F, F, F, F),
    ("INCONCLUSIVE", "skip"): (S, F, S, X, S, F, S, S),
    ("INCONCLUSIVE", "fail"): (F, F, F, X, X, F, F, F),
}
LINE = "{} min_decode=100: 100.0 tok/s (interval 95.00 to 105.0); as told"


@pytest.mark.parametrize(("outcome", "policy"), list(EXPECTED))
def test_a_verdict_and_a_body_decide_together(suite: Suite, outcome: str, policy: str) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=SUITE.format(outcome=outcome))

    result = suite.quick_run("-v", f"--sparkperf-inconclusive={policy}")

    seen = re.findall(r"^test_it\.py::\S+ ([A-Z]+)", str(result.stdout), re.MULTILINE)
    assert tuple(seen) == EXPECTED[outcome, policy]


@pytest.mark.parametrize("outcome", ["FAIL", "ERROR"])
def test_a_fixture_behind_the_measurement_cannot_skip_its_verdict_away(suite: Suite, outcome: str) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(
        test_it=f"""
import pytest
from pytest_sparkperf import sparkperf

@pytest.fixture
def data(): pytest.skip("no data here")

@sparkperf(name={outcome!r}, min_decode=100)
def test_it(sparkperf_result, data): ...
"""
    )

    result = suite.quick_run()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"SIMULATED {LINE.format(outcome)}", "*= sparkperf =*", "test_it.py::test_it"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_mark_on_one_parameter_leaves_the_others_alone(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(
        test_it="""
import pytest
from pytest_sparkperf import sparkperf

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=sparkperf(name="FAIL", min_decode=100)), 3])
def test_it(n): ...
"""
    )

    suite.quick_run().assert_outcomes(passed=2, failed=1)


def test_what_cannot_be_stopped_is_said_last_and_fails_the_run(suite: Suite) -> None:
    suite.do_not_measure()
    with (suite.pytester.path / "conftest.py").open("a") as file:
        file.write(
            """
@pytest.fixture(scope="session", autouse=True)
def a_server_that_stays(request):
    from pytest_sparkperf import ServerError
    from pytest_sparkperf.session import RUN

    class Bench:
        def close(self, *, keep): raise ServerError("processes 4711 of it do not end")
        def done(self, variant): ...

    request.config.stash[RUN]._bench = Bench()
"""
        )
    suite.pytester.makepyfile(test_it=SUITE.format(outcome="PASS"))

    result = suite.quick_run("-k", "passes")

    result.assert_outcomes(passed=2, deselected=6)
    result.stdout.fnmatch_lines(["*= sparkperf =*", "processes 4711 of it do not end", "*= 2 passed*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("outcome", ["PASS", "FAIL", "INCONCLUSIVE"])
def test_a_failing_body_shows_what_was_measured(suite: Suite, outcome: str) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=SUITE.format(outcome=outcome))

    result = suite.quick_run("test_it.py::test_fails")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   assert 0", "-* sparkperf -*", f"SIMULATED {LINE.format(outcome)}"])


def test_inconclusive_gates_are_skipped_where_their_tests_stand(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=SUITE.format(outcome="INCONCLUSIVE"))

    result = suite.quick_run("-rs", "-k", "passes or skips")

    result.assert_outcomes(skipped=4, deselected=4)
    reason = f"SIMULATED {LINE.format('INCONCLUSIVE')}"
    assert sorted(line for line in result.outlines if line.startswith("SKIPPED")) == [
        "SKIPPED [1] test_it.py:10: could not import 'no_such_module': No module named 'no_such_module'",
        f"SKIPPED [1] test_it.py:21: {reason}",
        "SKIPPED [1] test_it.py:23: not today",
        f"SKIPPED [1] test_it.py:6: {reason}",
    ]
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = "NOT PROVEN: 4 gates inconclusive, none reached a verdict, so the run fails"
    assert result.outlines[-2] == told


def test_one_verdict_is_enough_for_the_run(suite: Suite) -> None:
    suite.do_not_measure()
    gates = [
        f"@sparkperf(name={outcome!r}, min_decode=100)\ndef test_{outcome}(): ...\n"
        for outcome in ("PASS", "INCONCLUSIVE")
    ]
    suite.pytester.makepyfile(f"from pytest_sparkperf import sparkperf\n{gates[0]}{gates[1]}")

    result = suite.quick_run("-q", "--no-summary")

    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == pytest.ExitCode.OK
    assert "sparkperf ==" not in str(result.stdout)
    assert result.outlines[-2] == "NOT PROVEN: 1 gate inconclusive"


def test_the_ini_file_may_ask_for_a_failure_and_the_command_line_wins(suite: Suite) -> None:
    suite.pytester.makepyfile("def test_plain(): ...")
    suite.pytester.makeini("[pytest]\nsparkperf_inconclusive = fail\n")

    suite.quick_run().stdout.fnmatch_lines(["sparkperf: *, inconclusive gates fail"])
    skipping = suite.quick_run("--sparkperf-inconclusive=skip")
    skipping.stdout.fnmatch_lines(["sparkperf: *, inconclusive gates are skipped"])


def test_a_gate_without_a_single_round_ends_before_its_body(suite: Suite) -> None:
    """Measured: nothing can be found out in this time."""
    suite.pytester.makepyfile(
        test_it="from pytest_sparkperf import sparkperf\n"
        "@sparkperf(min_decode=1, budget_s=0.01, prompt_tokens=40, output_tokens=8)\n"
        "def test_it(): assert 0\n"
    )

    result = suite.run("-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [
            (
                "SKIPPED [[]1[]] test_it.py:2: SIMULATED INCONCLUSIVE min_decode=1: the budget of 0.01 s was "
                "spent: raise budget_s, or measure less"
            ),
            "NOT PROVEN: 1 gate inconclusive, none reached a verdict, so the run fails",
        ]
    )
