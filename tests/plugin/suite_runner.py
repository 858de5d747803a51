"""Runs pytest on small suites, against simulators that are shared by the whole session."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import pytest
from left_processes import assert_nothing_left

# Plugins of these tests that no suite uses: importing hypothesis takes as long as all else together.
_UNUSED = ("no:cacheprovider", "no:hypothesispytest", "no:timeout")
WITHOUT_UNUSED = tuple(word for name in _UNUSED for word in ("-p", name))
PYTEST = (sys.executable, "-m", "pytest", *WITHOUT_UNUSED)
# pytest-asyncio warns where this is not set, which is not what these suites are about.
_ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")
# pytest lets a conftest.py override a plugin's fixture: here by one that finds what the mark's name says.
_FOUND = """
import pytest
from pytest_sparkperf import Result, Verdict
from pytest_sparkperf.marks import GATE

@pytest.fixture
def _sparkperf_gate(request):
    gate = request.node.stash[GATE]
    outcome, limit = gate.spec.name, gate.spec.limits[0].bound if gate.spec.limits else None
    verdicts = [Verdict("min_decode", outcome, 100.0, 95.0, 105.0, limit, 90.0, "as told", 3)]
    gate.result = Result(
        decode_tok_s=100.0,
        ttft_ms=50.0,
        rounds=3,
        verdicts=tuple(verdicts if outcome != "MEASURED" else ()),
        server={"name": "here k=3", "k": 3, "model": "m"},
        simulated=True,
    )
    return gate
"""
# A log's lines are set off like this; what a server prints there is its own.
_LOG_LINE = re.compile(r"^  \| .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Suite:
    """Runs pytest on files in a folder of its own; no run may leave processes or show a traceback of ours."""

    pytester: pytest.Pytester
    url: str

    def run(self, *arguments: str, attach: bool = True) -> pytest.RunResult:
        """Run pytest in a process of its own; ``attach`` gives it the fast simulator."""
        urls = ("--sparkperf-url", self.url) if attach else ()
        return self.plain_run("--sparkperf", *urls, *arguments)

    def plain_run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a process of its own, without --sparkperf."""
        asyncio = () if "no:asyncio" in arguments else _ASYNCIO
        return self._checked(self.pytester.runpytest_subprocess(*WITHOUT_UNUSED, *asyncio, *arguments))

    def quick_run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest with --sparkperf in this process, for what ends before anything is measured."""
        return self._checked(
            self.pytester.runpytest_inprocess(*WITHOUT_UNUSED, *_ASYNCIO, "--sparkperf", *arguments)
        )

    def do_not_measure(self) -> None:
        """Let each gate find at once what the name in its mark says: PASS, FAIL, ..., or MEASURED."""
        self.pytester.makeconftest(_FOUND)

    def yaml(self, text: str) -> None:
        """Write sparkperf.yaml."""
        (self.pytester.path / "sparkperf.yaml").write_text(text, encoding="utf-8")

    def _checked(self, result: pytest.RunResult) -> pytest.RunResult:
        seen = _LOG_LINE.sub("", f"{result.stdout}\n{result.stderr}")
        for ours in ("Traceback", "INTERNALERROR", "During handling of", "pytest_sparkperf/"):
            assert ours not in seen
        assert_nothing_left(self.pytester.path)
        return result
