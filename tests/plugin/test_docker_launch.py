"""``launch: docker`` from the yaml to an answer, with a stand-in whose containers are simulators."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import DockerEngine
from suite_runner import Suite

YAML = """\
version: 1
targets:
  box: {launch: docker, image: "vllm:1", model: acme/m, args: {max-num-seqs: 4}, env: {HF_TOKEN: hf-canary-0}}
"""
SUITE = """
def test_it(sparkperf_server, sparkperf_measure):
    assert sparkperf_server.facts["image"] == "vllm:1"
    assert sparkperf_measure.request(prompt="one two", max_tokens=8).valid
"""


# Before pytester gives the suite a home of its own, by which what a run leaves is found.
@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    folder = tmp_path / "engine"
    folder.mkdir()
    started = DockerEngine.start(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield started
    started.stop()


def test_a_test_runs_on_a_container_and_leaves_none(engine: DockerEngine, suite: Suite) -> None:
    suite.yaml(YAML)
    suite.pytester.makepyfile(test_it=SUITE)

    result = suite.run(attach=False)

    result.assert_outcomes(passed=1)
    assert re.search(r"sparkperf-[0-9a-f]{12}", str(engine.calls("run")))
    assert engine.running(os.getuid()) == []
    assert "hf-canary-0" not in f"{result.stdout}{result.stderr}{engine.calls()}"


@pytest.mark.slow
def test_an_image_that_dies_fails_the_gate_with_the_log_of_its_container(
    engine: DockerEngine, suite: Suite
) -> None:
    suite.yaml(YAML.replace("vllm:1", "vllm:dies"))
    suite.pytester.makepyfile(test_it=SUITE)

    result = suite.run(attach=False)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["server 'box k=0' exited with status 1 while starting: RuntimeError: no kernel image.*"]
    )
    assert engine.running(os.getuid()) == []
