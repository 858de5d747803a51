"""``--sparkperf-config-ref``: the file of a git ref is used, and limits that a change moved are listed."""

from __future__ import annotations

import pytest
from git_command import git
from suite_runner import Suite

YAML = "version: 1\ntargets:\n  good: {launch: sim}\n"
TESTS = """
import pytest
from pytest_sparkperf import sparkperf

FLOOR = 100
pytestmark = sparkperf(name="PASS", tolerance=0)

@sparkperf(min_decode=FLOOR)
def test_floor(): ...

@sparkperf(min_decode=90)
class TestGroup:
    @sparkperf(max_rounds=6)
    def test_a(self): ...

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=sparkperf(min_decode=70))])
@sparkperf(min_decode=60)
def test_p(n): ...
"""
CHANGED = (
    TESTS.replace("FLOOR = 100", "FLOOR = 80")
    .replace("tolerance=0", "tolerance=0.05")
    .replace("@sparkperf(max_rounds=6)", "@sparkperf(max_rounds=3, min_prefill=5)")
    .replace("min_decode=70", "min_decode=50")
    + "\n@sparkperf(min_decode=10)\ndef test_new(): ...\n"
)


@pytest.fixture
def changed(suite: Suite) -> Suite:
    """A repository whose main has one target and a suite; a change made both easier."""
    root = suite.pytester.path
    suite.do_not_measure()
    suite.yaml(YAML)
    suite.pytester.makepyfile(test_it=TESTS)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "Start")
    git(root, "tag", "start")
    suite.yaml(YAML.replace("good", "fake"))
    suite.pytester.makepyfile(test_it=CHANGED)
    return suite


def test_the_file_of_the_ref_is_used_and_changed_limits_are_listed(changed: Suite) -> None:
    result = changed.quick_run("--sparkperf-config-ref=start")

    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["sparkperf: target good, sparkperf.yaml of start, inconclusive gates *"])
    lines = str(result.stdout).splitlines()
    start = lines.index("changed against start:")
    assert lines[start + 1 : start + 10] == [
        "  sparkperf.yaml: the working tree has another text, which is not used",
        "  test_it.py::test_floor: tolerance=0 -> 0.05",
        "  test_it.py::test_floor: min_decode=100 -> 80",
        "  test_it.py::TestGroup::test_a: tolerance=0 -> 0.05",
        "  test_it.py::TestGroup::test_a: max_rounds=6 -> 3",
        "  test_it.py::TestGroup::test_a: min_prefill=5 is new",
        "  test_it.py::test_p: tolerance=0 -> 0.05",
        "  test_it.py::test_p: marks of parameters: min_decode=70 -> min_decode=50",
        "  test_it.py::test_new: its mark is new, start has none",
    ]


def test_without_a_change_nothing_is_listed(changed: Suite) -> None:
    git(changed.pytester.path, "checkout", "-q", "--", ".")

    result = changed.quick_run("--sparkperf-config-ref=start")

    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("changed against *")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--sparkperf-config-ref=start", "--sparkperf-config=other.yaml"],
            (
                "--sparkperf-config-ref: start has no other.yaml; commit it there first, name another file "
                "by --sparkperf-config, or leave out the ref"
            ),
        ),
        (
            ["--sparkperf-config-ref=nope"],
            (
                "--sparkperf-config-ref: there is no git ref 'nope' in this repository; fetch it first, or "
                "name another"
            ),
        ),
        (
            ["--sparkperf-config-ref=start", "--sparkperf-config=../other.yaml"],
            (
                "--sparkperf-config-ref: '{root}/../other.yaml' is outside '{root}', so no git ref of that "
                "repository holds it"
            ),
        ),
        (
            ["--sparkperf-config-ref=bad"],
            (
                "--sparkperf-config-ref: bad:sparkperf.yaml:1: version: 7 is not a known version of this "
                "file; write version: 1"
            ),
        ),
    ],
)
def test_a_file_that_the_ref_does_not_give_is_an_error(
    changed: Suite, arguments: list[str], text: str
) -> None:
    root = changed.pytester.path
    changed.yaml("version: 7\ntargets: {}\n")
    git(root, "commit", "-qam", "Break it")
    git(root, "tag", "bad")

    result = changed.quick_run(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(result.stderr).strip() == f"ERROR: {text.replace('{root}', str(root))}"
