"""Hooks of our own; each docstring holds an example to copy into a conftest.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_sparkperf.core.result import Result


@pytest.hookspec
def pytest_sparkperf_targets(config: pytest.Config) -> Mapping[str, Mapping[str, Any]] | None:
    """Return targets by name, written as in sparkperf.yaml; they win over the file's.

    Example::

        def pytest_sparkperf_targets(config):
            return {"rented": {"launch": "attach", "url": os.environ["VLLM_URL"]}}
    """


@pytest.hookspec
def pytest_sparkperf_fingerprint(
    config: pytest.Config, target: str, facts: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return facts to keep beside a run's own, which baselines are compared by but never told apart by.

    ``facts`` is what the server says of itself. A value must be plain (text, number, list or mapping of
    these); a name of a fact that is kept anyway changes nothing. Of several hooks the one registered last
    wins.

    Example::

        def pytest_sparkperf_fingerprint(config, target, facts):
            return {"bios": Path("/sys/class/dmi/id/bios_version").read_text().strip()}
    """


@pytest.hookspec
def pytest_sparkperf_result(item: pytest.Item, result: Result) -> None:
    """Look at the result of a measurement, before the test's body sees it.

    Example::

        def pytest_sparkperf_result(item, result):
            print(item.nodeid, result.decode_tok_s, "tok/s")
    """
