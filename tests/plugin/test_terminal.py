"""The header and the terminal section: what is measured, what was found, and SIMULATED wherever it was."""

from __future__ import annotations

import re
import textwrap

import pytest
from suite_runner import Suite

SUITE = """
from pytest_sparkperf import sparkperf

@sparkperf(name="PASS", min_decode=90.5)
def test_easy(): ...

@sparkperf(name="FAIL", min_decode=10_000_000)
def test_hard(): ...

@sparkperf(name="MEASURED")
def test_bare(): ...
"""
FIGURES = """SIMULATED decode_tok_s 100.0 tok/s, ttft 50.00 ms
SIMULATED 3 rounds, 0 valid requests
SIMULATED here k=3 model m"""
JUDGED = (
    """SIMULATED {}: 100.0 tok/s (interval 95.00 to 105.0); as told
SIMULATED   a true value under 90.00 tok/s would have failed with 90 % probability
"""
    + FIGURES
)
SECTION = {
    "test_easy": JUDGED.format("PASS min_decode=90.5"),
    "test_hard": JUDGED.format("FAIL min_decode=10000000"),
    "test_bare": FIGURES,
}
EXPLAINED = "SIMULATED: a figure of the embedded simulator says nothing about a real server"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


def below(out: str, title: str) -> str:
    """Return the lines below the last headline with this title, up to the next one."""
    text = re.split(rf"^([=_-]+) {title} \1[=_-]?$", out, flags=re.MULTILINE)[-1]
    return re.split(r"^[=_-]{3,}", text, flags=re.MULTILINE)[0].strip("\n")


@pytest.mark.parametrize("arguments", [(), ("-q", "--color=yes")])
@pytest.mark.parametrize("columns", ["80", "30"])
def test_each_gate_has_its_lines_and_each_line_says_simulated(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, columns: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    suite.do_not_measure()
    suite.pytester.makepyfile(test_it=SUITE)

    result = suite.quick_run(*arguments)

    result.assert_outcomes(passed=2, failed=1)
    out = COLOUR.sub("", str(result.stdout))
    gates = [f"test_it.py::{name}\n{textwrap.indent(text, '  ')}" for name, text in SECTION.items()]
    assert below(out, "sparkperf") == "\n".join(gates)
    assert below(out, "test_hard") == f"{SECTION['test_hard']}\n{EXPLAINED}"
    if arguments:
        assert "\x1b[32m  SIMULATED PASS" in str(result.stdout)
        assert "\x1b[31m  SIMULATED FAIL" in str(result.stdout)


@pytest.mark.parametrize(
    ("yaml", "arguments", "shown"),
    [
        (None, [], "no target is named, so the embedded simulator serves"),
        ("a: {launch: sim}", [], "target a, sparkperf.yaml"),
        ("a: {launch: sim}\n  b: {launch: sim}", [], "the target that each test names, sparkperf.yaml"),
        ("a: {launch: sim}\n  b: {launch: sim}", ["--sparkperf-target=b"], "target b, sparkperf.yaml"),
        ("a: {launch: sim}", ["--sparkperf-config=other.yaml"], "target a, other.yaml"),
        (
            None,
            ["--sparkperf-url=0=http://h:1/v1", "--sparkperf-url=3=http://h:2/"],
            "target k=0 at http://h:1, k=3 at http://h:2",
        ),
    ],
)
def test_the_header_says_what_is_measured(
    suite: Suite, yaml: str | None, arguments: list[str], shown: str
) -> None:
    suite.pytester.makepyfile("def test_plain(): ...")
    if yaml is not None:
        suite.yaml(f"version: 1\ntargets:\n  {yaml}\n")
        (suite.pytester.path / "other.yaml").write_text(f"version: 1\ntargets:\n  {yaml}\n")

    result = suite.quick_run(*arguments)

    assert f"sparkperf: {shown}, inconclusive gates are skipped" in result.outlines
