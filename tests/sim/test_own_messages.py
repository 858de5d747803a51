"""A load of the user's own messages and tools, measured and compared; the KV cache that drafts cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gate_runner import K3, QUICK, run_gate, verdict
from simulator_process import StartSimulator

from pytest_sparkperf.core.tool_set import WEATHER

CALLING = ("--enable-auto-tool-choice", "--max-model-len", "16384")
ASKED = "What is the weather in Paris?"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Files with two conversations and one tool."""
    talks = [[{"role": "user", "content": ASKED}], [{"role": "user", "content": "And in Rome?"}]]
    (tmp_path / "messages.json").write_text(json.dumps(talks), encoding="utf-8")
    (tmp_path / "tools.json").write_text(json.dumps([WEATHER]), encoding="utf-8")
    return {name: str(tmp_path / f"{name}.json") for name in ("messages", "tools")}


@pytest.mark.slow
def test_own_messages_and_tools_are_measured(
    simulator: StartSimulator, tmp_path: Path, files: dict[str, str]
) -> None:
    url = simulator(*QUICK, *CALLING).url

    result = run_gate(
        tmp_path, url, min_decode=1, messages=files["messages"], tools=files["tools"], prompt_tokens=None
    )

    assert {one.prompt_name for one in result.requests} == {"messages-0", "messages-1"}
    lengths = {one.prompt_name: one.prompt_tokens for one in result.requests}
    bare = run_gate(tmp_path, url, min_decode=1, messages=files["messages"], prompt_tokens=None)
    shorter = {one.prompt_name: one.prompt_tokens for one in bare.requests}
    assert all((lengths[name] or 0) > (shorter[name] or 0) > 0 for name in lengths)


@pytest.mark.slow
def test_own_messages_and_tools_are_a_line_of_the_comparison(
    simulator: StartSimulator, tmp_path: Path, files: dict[str, str]
) -> None:
    flags = ("--slowdown", "0.05", "--jit-s", "0", *CALLING)
    off, on = simulator(*flags).url, simulator(*flags, *K3[-2:], "--fault", "altered_argument").url

    result = run_gate(
        tmp_path,
        on,
        reference=off,
        same_output=True,
        messages=files["messages"],
        tools=files["tools"],
        prompt_tokens=None,
    )

    assert verdict(result, "same_output").outcome == "FAIL", result.verdicts
    [line] = [note for note in result.notes if note.startswith("  own messages: ")]
    assert line.startswith("  own messages: FAIL 1 of 2 equal, off against itself 2 of 2")


@pytest.mark.parametrize(("limit", "outcome"), [(0.25, "PASS"), (0.2, "FAIL")])
def test_the_kv_cache_that_drafts_cost_is_limited(
    simulator: StartSimulator, tmp_path: Path, limit: float, outcome: str
) -> None:
    result = run_gate(
        tmp_path,
        simulator(*K3).url,
        reference=simulator(*QUICK).url,
        max_kv_loss=limit,
        budget_s=0.1,
        output_tokens=8,
    )

    found = verdict(result, "max_kv_loss")
    assert (found.outcome, found.limit) == (outcome, limit)
    assert found.estimate == pytest.approx(1 - 5_660_790 / 7_121_578)
    assert found.reason == "KV cache 7,121,578 -> 5,660,790 tokens"
