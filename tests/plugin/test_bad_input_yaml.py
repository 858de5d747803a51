"""A sparkperf.yaml or a hook that cannot be used: all its faults with their lines, and nothing run."""

from __future__ import annotations

import pytest
from suite_runner import Suite

GATE = "def test_plain(): ...\n\ndef test_gate(sparkperf_measure): ...\n"
NO_URL = "is not the URL of a server; give its root, such as http://127.0.0.1:8000"
KEYS = (
    "valid keys are launch, model, k, ready_timeout_s, silence_timeout_s, url, api_key_env, traffic, "
    "hardware, probe"
)
FAULTY = """version: 1
default_target: fast
targets:
  fsat:
    launch: vlm
  rented:
    launch: attach
    url: nope
    port: 8000
  twice: {launch: sim, k: 1, k: 2}
"""
TOLD = (
    "ERROR: sparkperf.yaml:2: default_target: 'fast' is not one of the targets; did you mean fsat? targets "
    "are fsat, rented, twice\n"
    "sparkperf.yaml:5: targets.fsat.launch: 'vlm' is not a launch kind; did you mean vllm? valid are vllm, "
    "docker, recipe, command, attach, sim\n"
    f"sparkperf.yaml:8: targets.rented.url: 'nope' {NO_URL}\n"
    f"sparkperf.yaml:9: targets.rented.port: is not a known key; {KEYS}\n"
    "sparkperf.yaml:10: targets.twice.k: is given twice, first in line 10; keep one"
)


@pytest.mark.parametrize("arguments", [(), ("-q",)])
def test_all_faults_of_the_file_are_told_with_their_lines(suite: Suite, arguments: tuple[str, ...]) -> None:
    suite.yaml(FAULTY)
    suite.pytester.makepyfile(GATE)

    result = suite.quick_run(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(result.stderr).strip() == TOLD


def test_malformed_yaml_is_told_before_xdist_starts_workers(suite: Suite) -> None:
    suite.yaml("version: 1\ntargets:\n  a: {launch: sim\n")
    suite.pytester.makepyfile(GATE)

    result = suite.run("-n2", attach=False)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(result.stderr).strip() == (
        "ERROR: sparkperf.yaml:3: is not valid YAML: expected ',' or '}', but got '<stream end>'"
    )


def test_a_target_of_the_hook_is_checked_as_one_of_the_file(suite: Suite) -> None:
    suite.pytester.makeconftest(
        "def pytest_sparkperf_targets(config):\n"
        "    return {'rented': {'launch': 'attach', 'url': 'nope', 'kk': 1}}\n"
    )
    suite.pytester.makepyfile(GATE)

    result = suite.quick_run()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert str(result.stderr).strip() == (
        f"ERROR: the hook pytest_sparkperf_targets: targets.rented.kk: is not a known key; did you "
        f"mean k? {KEYS}\ntargets.rented.url: 'nope' {NO_URL}"
    )
