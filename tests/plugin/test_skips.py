"""Without --sparkperf every gate is skipped with that reason, and nothing else notices the plugin."""

from __future__ import annotations

import pytest
from suite_runner import Suite

SUITE = """
import pytest, unittest
from pytest_sparkperf import sparkperf

@sparkperf(min_decode=1)
def test_marked(): ...

@sparkperf(min_decod=1)
def test_faulty(): ...

def test_uses_a_fixture(sparkperf_client): ...

def test_uses_targets(sparkperf_targets): ...

@pytest.fixture
def speed(sparkperf_measure):
    return sparkperf_measure(k=3)

def test_uses_a_fixture_of_its_own(speed): ...

def test_asks_in_the_body(request):
    request.getfixturevalue("sparkperf_measure")

@pytest.fixture
def dynamic(request):
    return request.getfixturevalue("sparkperf_targets")

def test_asks_in_a_fixture(dynamic): ...

class TestCase(unittest.TestCase):
    @sparkperf(min_decode=1)
    def test_it(self): ...

def test_plain(): ...
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_gates_are_skipped_where_they_stand_and_others_run(suite: Suite, workers: str) -> None:
    suite.pytester.makepyfile(test_it=SUITE)

    result = suite.plain_run("-rs", workers, "--strict-markers", "--strict-config", "-W", "error")

    result.assert_outcomes(passed=1, skipped=8)
    lines = [line for line in result.outlines if line.startswith("SKIPPED")]
    # pytest itself folds skip marks that were added later, and leaves out their lines.
    places = [
        "[1] test_it.py:4",
        "[1] test_it.py:7",
        "[3] test_it.py",
        *(f"[1] test_it.py:{at}" for at in (20, 27, 30)),
    ]
    assert sorted(lines) == sorted(
        f"SKIPPED {place}: a performance gate: runs with --sparkperf" for place in places
    )
    assert "warning" not in str(result.stdout)
    assert not any(line.startswith("sparkperf:") for line in result.outlines)


def test_the_mark_is_registered_and_documented(suite: Suite) -> None:
    result = suite.plain_run("--markers", "--strict-markers", "--strict-config", "-W", "error")

    result.stdout.fnmatch_lines(
        [
            (
                "@pytest.mark.sparkperf(min_decode=..., max_ttft_ms=..., k=..., target=..., max_rounds=12, "
                "...): measure a vLLM server before the test and judge it after the test; see the README for "
                "all keywords"
            ),
        ]
    )


def test_with_no_gate_selected_the_switch_does_nothing(suite: Suite) -> None:
    suite.pytester.makepyfile(test_it="def test_plain(): ...\ndef test_other(sparkperf_client): ...\n")

    result = suite.quick_run("-k", "plain", "--sparkperf-target=nowhere")

    result.assert_outcomes(passed=1, deselected=1)
    assert "= sparkperf =" not in str(result.stdout)
    assert "NOT PROVEN" not in str(result.stdout)


def test_collecting_starts_no_server(suite: Suite) -> None:
    suite.pytester.makepyfile("from pytest_sparkperf import sparkperf\n@sparkperf()\ndef test_it(): ...\n")
    suite.yaml("version: 1\ntargets:\n  missing: {launch: vllm, model: m, executable: /no/vllm}\n")

    result = suite.quick_run("--collect-only", "-q")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*::test_it", "1 test collected in *"])
