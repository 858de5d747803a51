"""The published runs as suites that their authors could check in: each runs on the simulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_sparkperf.adapters.config_file import read_config
from pytest_sparkperf.core.targets import find_target

EXAMPLES = Path(__file__).parents[2] / "conftest_examples"
# A part of each suite that says yes within a minute; the whole of each takes minutes and is a soak test.
QUICK = {
    "attach_remote": ("test_rented.py::test_mtp_pays",),
    "bench_report_three_workloads": ("test_three_workloads.py::test_four_at_once",),
    "fp8_mtp_docker": ("test_fp8_mtp.py::test_with_mtp",),
    "github_actions": ("test_gate.py::test_fast_enough", "test_gate.py::test_mtp_pays"),
    "long_context": ("test_depth.py::test_long_prompt[8208]",),
    "nvfp4_fast_k_sweep": ("test_k_sweep.py::test_decode[3]", "test_k_sweep.py::test_three_drafts_pay"),
    "nvfp4_mtp_marlin": ("test_marlin_mtp.py::test_thinking_is_counted",),
    "paired_ab_concurrency": ("test_mtp_by_concurrency.py::test_mtp_pays[1]",),
    "recipe_yaml": ("test_recipe.py::test_single_stream",),
    "single_and_eight_streams": ("test_two_definitions.py",),
}
WHOLE = {name: () for name in QUICK if name != "github_actions"}  # which needs records: see below
WORKFLOWS = EXAMPLES / "github_actions" / ".github" / "workflows"


def run(folder: Path, *arguments: str, timeout_s: float = 280) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "CI")}
    plugins = ("-p", "no:cacheprovider", "-p", "no:asyncio")
    command = [sys.executable, "-m", "pytest", "--sparkperf", "--sparkperf-target", "sim", *plugins]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def copy(name: str, to: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / name, to / name))


def passes(done: subprocess.CompletedProcess[str]) -> bool:
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "  SIMULATED PASS " in done.stdout
    return re.search(r"= \d+ passed in ", done.stdout) is not None


def workflow(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return document


def steps(name: str, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow(name)["jobs"][job]["steps"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", QUICK)
def test_a_part_of_the_suite_passes_on_the_simulator(name: str, tmp_path: Path) -> None:
    folder = copy(name, tmp_path)

    done = run(folder, *QUICK[name])
    for _ in range(2):
        if "INCONCLUSIVE" not in done.stdout:  # other work on this machine may leave a gate open
            break
        done = run(folder, *QUICK[name])

    assert passes(done)


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_suite_passes_on_the_simulator(name: str, tmp_path: Path) -> None:
    assert passes(run(copy(name, tmp_path), timeout_s=1400))


@pytest.mark.soak
def test_the_gate_of_the_workflows_judges_by_what_the_nights_recorded(tmp_path: Path) -> None:
    folder = copy("github_actions", tmp_path)
    for _ in range(3):
        assert run(folder, "--sparkperf-record", "-k", "nights").returncode == pytest.ExitCode.OK

    done = run(folder)

    assert passes(done)
    assert "  SIMULATED PASS max_slowdown=0.05: " in done.stdout


@pytest.mark.parametrize("name", QUICK)
def test_a_suite_has_its_authors_machine_and_the_simulator(name: str) -> None:
    config = read_config(EXAMPLES / name / "sparkperf.yaml")

    assert find_target(config.targets, config.default_target).launch != "sim"
    assert config.targets["sim"].launch == "sim"
    assert (EXAMPLES / name / "pytest.ini").is_file()
    assert (EXAMPLES / name / "README.md").is_file()


def test_the_recipe_is_started_as_it_was_published() -> None:
    command = [sys.executable, "-m", "pytest_sparkperf", "render", "spark"]

    done = subprocess.run(
        command, cwd=EXAMPLES / "recipe_yaml", capture_output=True, text=True, timeout=60, check=True
    )

    assert '--speculative-config \'{"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}\'' in (
        done.stdout
    )
    assert "--gpu-memory-utilization 0.8 " in done.stdout  # overridden
    assert "--max-num-seqs 4 " in done.stdout


def test_a_pull_request_cannot_bring_its_own_limits() -> None:
    document = workflow("pre-merge.yml")
    triggers = document[True]  # YAML 1.1 reads the key `on` as true
    gate = steps("pre-merge.yml", "gate")
    checkouts = [step["with"]["ref"] for step in gate if "actions/checkout" in step.get("uses", "")]

    assert list(triggers) == ["pull_request"]
    assert checkouts == ["${{ github.event.pull_request.base.sha }}"]
    assert document["permissions"] == {"contents": "read"}
    assert document["jobs"]["gate"]["runs-on"] == ["self-hosted", "spark"]
    # What runs code of the pull request to build it does not run on the Spark.
    assert "self-hosted" not in document["jobs"]["wheel"]["runs-on"]


@pytest.mark.parametrize(("name", "job"), [("pre-merge.yml", "gate"), ("nightly.yml", "measure")])
def test_a_workflow_stops_what_is_left_whatever_happened(name: str, job: str) -> None:
    last = steps(name, job)[-1]

    assert last["if"] == "always()"
    assert last["run"].endswith('sparkperf" stop')


def test_only_the_night_on_main_records() -> None:
    runs = {
        name: str(steps(name, job)) for name, job in (("pre-merge.yml", "gate"), ("nightly.yml", "measure"))
    }

    assert "--sparkperf-record" in runs["nightly.yml"]
    assert "--sparkperf-record" not in runs["pre-merge.yml"]
    assert workflow("nightly.yml")["jobs"]["measure"]["if"] == "github.ref == 'refs/heads/main'"


def test_the_spark_measures_and_a_hosted_job_commits() -> None:
    document = workflow("nightly.yml")
    may_write = [name for name, job in document["jobs"].items() if "permissions" in job]

    assert document["permissions"] == {"contents": "read"}
    assert may_write == ["commit"]
    assert "self-hosted" not in document["jobs"]["commit"]["runs-on"]
    assert all(
        step["with"]["persist-credentials"] is False
        for step in steps("nightly.yml", "measure")
        if "actions/checkout" in step.get("uses", "")
    )


def test_the_workflows_use_options_that_there_are() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS.iterdir())
    used = set(re.findall(r"--sparkperf(?:-[a-z]+)*", text))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], capture_output=True, text=True, timeout=60, check=True
    )

    assert used == {option for option in used if re.search(rf"{option}\b", done.stdout)}
    assert "--sparkperf-record" in used
