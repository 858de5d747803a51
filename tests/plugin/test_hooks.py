"""The hooks of this plugin, by the examples in their docstrings."""

from __future__ import annotations

import inspect
import textwrap

import pytest
from suite_runner import Suite

from pytest_sparkperf import hookspecs

SMALL = "prompt_tokens=40, output_tokens=16, max_rounds=3"


def example(name: str) -> str:
    """Return the example of a hook, as a user would copy it."""
    doc = inspect.getdoc(getattr(hookspecs, name))
    assert doc is not None
    return textwrap.dedent(doc.partition("Example::\n")[2])


def test_every_hook_has_an_example() -> None:
    names = [name for name in vars(hookspecs) if name.startswith("pytest_sparkperf_")]

    assert len(names) >= 2
    assert all(f"def {name}(" in example(name) for name in names)


def test_the_examples_work(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_URL", suite.url)
    examples = example("pytest_sparkperf_targets") + example("pytest_sparkperf_result")
    suite.pytester.makeconftest(f"import os\n\n{examples}")
    suite.yaml("version: 1\ntargets:\n  rented: {launch: attach, url: 'http://127.0.0.1:9'}\n")
    suite.pytester.makepyfile(
        test_it=f"""
from pytest_sparkperf import sparkperf

@sparkperf({SMALL})
def test_speed(sparkperf_server, sparkperf_targets):
    assert sparkperf_server.url == {suite.url!r}
    assert list(sparkperf_targets) == ["rented"]
    try:
        sparkperf_targets["mine"] = sparkperf_targets["rented"]
    except TypeError:
        return
    raise AssertionError("the view can be written to")
"""
    )

    result = suite.run("-s", attach=False)

    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"(.* )?test_it\.py::test_speed \d+\.\d+ tok/s"])
