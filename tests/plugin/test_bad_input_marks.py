"""A mark that cannot be used: every fault at once before anything runs, and no harm to other tests."""

from __future__ import annotations

import pytest
from suite_runner import Suite

from pytest_sparkperf.core.keywords import valid_keywords

HEAD = "import pytest\nfrom pytest_sparkperf import sparkperf\n"
FAULTY = f"""
{HEAD}
@sparkperf(min_decod=100)
def test_typo(): ...

@sparkperf(100)
def test_positional(): ...

@sparkperf(k="3", max_ttft_ms=True)
def test_type(): ...

@sparkperf(min_speedup=1.25)
def test_contradiction(): ...

@pytest.mark.parametrize("n", [1, 2, 3])
@sparkperf(min_goodput=0.5, min_decode=1)
def test_later(n): ...

@sparkperf(target="nope")
def test_target(): ...

@sparkperf(min_decode=1)
def test_good(): ...

def test_plain(): ...
"""
VALID = f"valid keywords are {valid_keywords()}"
FAULTS = {
    "test_typo": ["min_decod is not a keyword of the sparkperf mark; did you mean min_decode?"],
    "test_positional": [
        "sparkperf(100) has arguments without a keyword; name each one, for example sparkperf(min_decode=100)"
    ],
    "test_type": [
        "k='3' is not a whole number of 0 or more; give num_speculative_tokens, 0 for none, such as k=3",
        "max_ttft_ms=True is not a number above 0; give milliseconds, such as max_ttft_ms=500",
    ],
    "test_contradiction": [
        'min_speedup needs against: say what to compare with, such as against={"k": 0}',
    ],
    "test_later[1] (and 2 more)": [
        'min_goodput needs slo: the limits that a request must meet, such as slo={"ttft_ms": 500}',
    ],
    "test_target": ["target 'nope' is not known; there are no targets; describe it in sparkperf.yaml"],
}
WORKER = (
    "a performance gate cannot run in the xdist worker {}, where other workers share the machine and spoil "
    "its figures; run gates with -n0, for example: pytest --sparkperf -n0 -m sparkperf"
)


@pytest.mark.parametrize("arguments", [(), ("-q",), ("--collect-only",), ("-k", "not plain")])
def test_all_faults_are_one_usage_error(suite: Suite, arguments: tuple[str, ...]) -> None:
    suite.pytester.makepyfile(test_it=FAULTY)

    result = suite.quick_run(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    told = [f"test_it.py::{name}: {fault}" for name, faults in FAULTS.items() for fault in faults]
    assert str(result.stderr).strip() == "\n".join([f"ERROR: {told[0]}", *told[1:], VALID])
    assert "passed" not in str(result.stdout)


def test_in_a_worker_each_faulty_gate_fails_by_itself(suite: Suite) -> None:
    suite.pytester.makepyfile(test_it=FAULTY)

    result = suite.run("-n2", attach=False)

    result.assert_outcomes(passed=1, errors=9)
    out = str(result.stdout)
    assert f"\n{FAULTS['test_typo'][0]}\n{VALID}\n" in out
    for name in ("test_positional", "test_type", "test_contradiction", "test_target"):
        assert "\n".join(["", *FAULTS[name], ""]) in out
    assert out.count(f"\n{FAULTS['test_later[1] (and 2 more)'][0]}\n") == 3
    assert sum(f"\n{WORKER.format(worker)}\n" in out for worker in ("gw0", "gw1")) == 1


def test_unselected_faults_harm_nothing(suite: Suite) -> None:
    suite.pytester.makepyfile(test_it=FAULTY)

    result = suite.quick_run("-k", "plain")

    result.assert_outcomes(passed=1, deselected=9)
    assert str(result.stderr) == ""


def test_a_target_that_is_not_there_may_be_skipped(suite: Suite) -> None:
    suite.pytester.makepyfile(
        f"""
{HEAD}
@pytest.mark.skipif("True", reason="no such server here")
@sparkperf(target="nope")
def test_skipped(): ...

@pytest.mark.skipif("False", reason="no such server here")
@sparkperf(target="nope")
def test_not_skipped(): ...
"""
    )

    result = suite.quick_run("-rs")

    result.assert_outcomes(skipped=1, errors=1)
    result.stdout.fnmatch_lines([FAULTS["test_target"][0], "SKIPPED [[]1[]] *.py:4: no such server here"])


def test_a_limit_that_the_budget_can_never_prove_is_refused(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_it=f"{HEAD}\n@sparkperf(max_ttft_p99_ms=500, max_rounds=12)\ndef test_it(): ...\n"
    )

    result = suite.quick_run()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(result.stderr).strip() == (
        "ERROR: test_it.py::test_it: max_ttft_p99_ms can never be proven with 48 requests: p99 of ttft_ms "
        "needs 619; raise requests, concurrency or max_rounds, or limit a lower percentile"
    )


def test_a_wrong_keyword_in_the_body_shows_the_line_of_the_body(suite: Suite) -> None:
    suite.pytester.makepyfile("def test_it(sparkperf_measure):\n    sparkperf_measure(min_decod=1)\n")

    result = suite.quick_run("--tb=short")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*.py:2: in test_it",
            "    sparkperf_measure(min_decod=1)",
            "E   *MarkError: min_decod is not a keyword of the sparkperf mark; did you mean min_decode?",
        ],
        consecutive=True,
    )
