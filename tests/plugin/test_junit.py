"""JUnit XML, which CI systems read, holds what a gate found."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from suite_runner import Suite


def test_each_outcome_has_its_element(suite: Suite) -> None:
    suite.pytester.makepyfile(
        """
import unittest
from pytest_sparkperf import sparkperf

@sparkperf(name="PASS", min_decode=1)
def test_pass(): ...

@sparkperf(name="INCONCLUSIVE", min_decode=1)
def test_undecided(): ...

class TestCase(unittest.TestCase):
    @sparkperf(name="FAIL", min_decode=200)
    def test_fail(self): self.skipTest("no")

@sparkperf(target="nowhere")
class TestServer:
    def test_unreachable(self, sparkperf_server): ...
"""
    )
    suite.yaml(
        "version: 1\ntargets:\n  here: {launch: sim}\n  nowhere: {launch: attach, url: 'http://127.0.0.1:9'}\n"
    )

    suite.do_not_measure()
    suite.quick_run("--junitxml=out.xml", "--sparkperf-target=here").assert_outcomes(
        passed=1, skipped=1, failed=1, errors=1
    )

    cases = ET.parse(suite.pytester.path / "out.xml").getroot().iter("testcase")  # noqa: S314 - our own file
    found = {
        case.attrib["name"]: {part.tag: part.attrib.get("message", "") for part in case} for case in cases
    }
    assert {name: sorted(parts) for name, parts in found.items()} == {
        "test_pass": [],
        "test_undecided": ["skipped"],
        "test_fail": ["failure"],
        "test_unreachable": ["error"],
    }
    assert found["test_undecided"]["skipped"] == (
        "SIMULATED INCONCLUSIVE min_decode=1: 100.0 tok/s (interval 95.00 to 105.0); as told"
    )
    assert found["test_fail"]["failure"].startswith("SIMULATED FAIL min_decode=200: 100.0 tok/s ")
    assert "nothing answers at http://127.0.0.1:9 " in found["test_unreachable"]["error"]
