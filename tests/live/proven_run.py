"""Runs a suite until it is proven: other work on a test machine may leave a gate INCONCLUSIVE."""

from __future__ import annotations

import pytest

_TRIES = 4


def proven_run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest with --sparkperf, again where a gate was skipped as INCONCLUSIVE, and return the last run.

    A FAIL or ERROR is never run again.
    """
    for _ in range(_TRIES):
        result = pytester.runpytest_subprocess("--sparkperf", "-p", "no:cacheprovider", *arguments)
        if "skipped" not in result.parseoutcomes():
            break
    return result
