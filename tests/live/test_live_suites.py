"""The published runs' suites on a real vLLM: the same tests, with small numbers, on a small model."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from proven_run import proven_run
from vllm_serve import MAX_NUM_SEQS, LiveServers

EXAMPLES = Path(__file__).parents[2] / "conftest_examples"
# What a laptop's processor can serve: short prompts and answers, few at once, and limits that a tiny model on
# it keeps. What a test says in its body stays as it is.
SCALED = f"""
import pytest

MOST = {{"prompt_tokens": 96, "output_tokens": 256, "concurrency": {MAX_NUM_SEQS}, "max_rounds": 3}}


def scaled(name, value):
    if name in MOST:
        return min(value, MOST[name])
    if name.startswith("min_"):
        return value / 1000
    return value * 1000 if name.startswith("max_") and name.endswith("_ms") else value


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    marks = [mark for item in items for mark in item.iter_markers("sparkperf")]
    for keywords in {{id(mark.kwargs): mark.kwargs for mark in marks}}.values():
        keywords.update({{name: scaled(name, value) for name, value in keywords.items()}})
"""
# Which tests of each suite two servers can serve, one without drafts and one with three.
TESTS = {
    "attach_remote": (),
    "bench_report_three_workloads": ("-k", "balanced or four"),
    "fp8_mtp_docker": (),
    "github_actions": ("-k", "not nights"),  # which judges by records
    "long_context": (),
    "nvfp4_fast_k_sweep": ("-k", "[0] or [3] or three_drafts"),
    "nvfp4_mtp_marlin": (),
    "paired_ab_concurrency": ("-k", "[1] or [4] or [32]"),
    "recipe_yaml": (),
    # On a CPU this vLLM dies of drafts with a prefix cache: README.md beside this file.
    "single_and_eight_streams": ("-k", "not warm"),
}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TESTS)
def test_a_suite_runs_scaled_down_on_a_real_server(
    name: str, live_server: LiveServers, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(EXAMPLES / name, pytester.path, dirs_exist_ok=True)
    (pytester.path / "conftest.py").write_text(SCALED)
    scale_workloads(pytester.path / "sparkperf.yaml")
    urls = [("--sparkperf-url", f"{k}={live_server(k).url}") for k in (0, 3)]

    result = proven_run(pytester, *[word for url in urls for word in url], *TESTS[name])

    text = result.stdout.str()
    assert result.parseoutcomes().keys() <= {"passed", "deselected"}, text
    assert "SIMULATED" not in text
    assert re.search(r"^  PASS min_\w+=", text, re.MULTILINE)


def scale_workloads(path: Path) -> None:
    """Write the workloads of a suite with small numbers; eight requests still queue for four places."""
    document = yaml.safe_load(path.read_text())
    for load in document.get("workloads", {}).values():
        load |= {"prompt_tokens": 96, "output_tokens": 256, "concurrency": min(8, load["concurrency"])}
    path.write_text(yaml.safe_dump(document))
