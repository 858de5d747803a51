"""Fixtures of the live tests: the vLLM to use, a server per k, and a sparkperf.yaml for both."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm_serve import LiveServers, write_config

_WAY_OUT = (
    "tests/live/install_vllm_cpu.sh builds one in a few minutes and prints the line to set: "
    "SPARKPERF_VLLM=.../bin/vllm"
)


def _missing_vllm() -> str | None:
    """Say what is missing, None where nothing is."""
    named = os.environ.get("SPARKPERF_VLLM")
    if not named:
        return f"SPARKPERF_VLLM is not set, so there is no vLLM to test with; {_WAY_OUT}"
    if shutil.which(named) is None:
        return f"SPARKPERF_VLLM is {named!r}, which is no executable file; {_WAY_OUT}"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this folder live."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.live)


@pytest.fixture(scope="session")
def vllm_executable() -> str:
    """The vLLM named by SPARKPERF_VLLM; without one skips, or fails where SPARKPERF_REQUIRE_LIVE is 1."""
    missing = _missing_vllm()
    if missing is None:
        return os.environ["SPARKPERF_VLLM"]
    if os.environ.get("SPARKPERF_REQUIRE_LIVE") == "1":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def live_config(vllm_executable: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sparkperf.yaml that starts the tiny model on this vLLM, also for runs of pytest within a test."""
    path = tmp_path_factory.mktemp("config") / "sparkperf.yaml"
    write_config(path, vllm_executable)
    return path


@pytest.fixture(scope="session")
def live_server(live_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServers]:
    """Call with k for a running server with that many draft tokens."""
    servers = LiveServers(live_config, tmp_path_factory.mktemp("vllm"))
    yield servers
    servers.stop()
