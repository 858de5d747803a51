"""Loads by name and prompts from files: found, and refused before anything starts."""

from __future__ import annotations

from pathlib import Path

from suite_runner import Suite

SHAREGPT = Path(__file__).parents[1] / "data" / "sharegpt_small.json"
YAML = """
version: 1
default_target: fast
targets:
  fast: {launch: sim}
workloads:
  chat: {dataset: data/s.json, output_tokens: 8, concurrency: 2}
"""
SUITE = """
from pathlib import Path

from pytest_sparkperf import sparkperf
from pytest_sparkperf.marks import GATE

ROOT = Path(__file__).parents[1]

@sparkperf(workload="chat", name="MEASURED")
def test_named(request, _sparkperf_gate):
    load = request.node.stash[GATE].spec.load
    assert (load.dataset, load.output_tokens, load.concurrency) == (str(ROOT / "data" / "s.json"), 8, 2)

@sparkperf(dataset="own.jsonl", name="MEASURED")
def test_beside(request):
    load = request.node.stash[GATE].spec.load
    assert (load.dataset, load.own_lengths) == (str(ROOT / "tests" / "own.jsonl"), True)
"""
FAULTY = """
from pytest_sparkperf import sparkperf

@sparkperf(dataset="own.jsonl")
def test_file(): ...

@sparkperf(workload="chats")
def test_name(): ...
"""
BAD_FILE = (
    'own.jsonl:2: {"promt": "b"} is not one prompt; give {"prompt": "..."} or {"messages": [{"role": "user", '
    '"content": "..."}]}, and "output_tokens" where the length of its answer is known'
)
NO_WORKLOAD = (
    "workload 'chats' is not known; did you mean chat? workloads are chat; describe it in sparkperf.yaml"
)


def test_a_workload_and_files_are_found_beside_yaml_and_test(suite: Suite) -> None:
    folder = suite.pytester.path
    (folder / "data").mkdir()
    (folder / "data" / "s.json").write_bytes(SHAREGPT.read_bytes())
    (folder / "tests").mkdir()
    (folder / "tests" / "own.jsonl").write_text('{"prompt": "Count."}\n' * 4)
    (folder / "tests" / "test_loads.py").write_text(SUITE)
    suite.yaml(YAML)
    suite.do_not_measure()

    suite.quick_run().assert_outcomes(passed=2)


def test_a_bad_file_and_an_unknown_workload_are_told_together_before_anything_runs(suite: Suite) -> None:
    suite.yaml(YAML)
    suite.pytester.makepyfile(test_bad=FAULTY)
    (suite.pytester.path / "own.jsonl").write_text('{"prompt": "a"}\n{"promt": "b"}\n')

    result = suite.quick_run()

    assert result.ret == 4
    assert [line for line in result.errlines if line] == [
        f"ERROR: test_bad.py::test_file: {BAD_FILE}",
        f"test_bad.py::test_name: {NO_WORKLOAD}",
    ]
