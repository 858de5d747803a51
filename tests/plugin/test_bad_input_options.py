"""An option that cannot be used as written: one sentence, exit status 4, nothing run."""

from __future__ import annotations

import pytest
from suite_runner import Suite

PLAIN = "def test_plain(): ...\n"
GATE = f"{PLAIN}\ndef test_gate(sparkperf_measure): ...\n"
MARKED = "from pytest_sparkperf import sparkperf\n\n@sparkperf(min_decode=1)\ndef test_gate(): ...\n"
PER_K = (
    "say once per k which server has it, for example --sparkperf-url 0=http://host:8000 "
    "--sparkperf-url 3=http://host:8001"
)
NO_URL = "is not the URL of a server; give its root, such as http://127.0.0.1:8000"
URL = "--sparkperf-url"
YAML = "version: 1\ntargets:\n  fast: {launch: sim}\n  slow: {launch: sim}\n"


def usage_error(result: pytest.RunResult) -> str:
    """Return the message of a run that ended before any test, the lines about usage left out."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "passed" not in str(result.stdout)
    return str(result.stderr).strip()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([URL, "nope"], f"--sparkperf-url [K=]URL: 'nope' {NO_URL}"),
        (["--sparkperf-url=-1=http://h:1"], f"--sparkperf-url [K=]URL: '-1=http://h:1' {NO_URL}"),
        ([URL, "3=h:8000"], f"--sparkperf-url [K=]URL: 'h:8000' {NO_URL}"),
        (
            [URL, "http://h:1/?key=x"],
            (
                "--sparkperf-url [K=]URL: 'http://h:1/?key=x' is not the root of a server; leave out "
                "everything from the ? or # on"
            ),
        ),
        (
            [URL, "http://user:secret@h:1"],
            (
                "--sparkperf-url [K=]URL: holds a user name or password; put the key into an environment "
                "variable, named by api_key_env:"
            ),
        ),
        (
            [URL, "http://h:1", "--sparkperf-target", "fast"],
            "--sparkperf-url and --sparkperf-target=fast both say what to measure; give one of them",
        ),
        (
            [URL, "3=http://h:1", URL, "3=http://h:2"],
            f"--sparkperf-url was given 2 times for k=3; {PER_K}",
        ),
        (
            [URL, "http://h:1", URL, "3=http://h:2"],
            f"--sparkperf-url was given 2 times, not always with a k; {PER_K}",
        ),
        (
            ["--sparkperf-config", "no.yaml"],
            (
                "--sparkperf-config=no.yaml: there is no file '{path}/no.yaml'; name the file that describes "
                "the servers, or leave this out to use sparkperf.yaml in the root directory"
            ),
        ),
        (
            ["-o", "sparkperf_config=no.yaml"],
            (
                "sparkperf_config = no.yaml in the ini file: there is no file '{path}/no.yaml'; name the "
                "file that describes the servers, or leave this out to use sparkperf.yaml in the root "
                "directory"
            ),
        ),
        (
            ["-o", "sparkperf_inconclusive=maybe"],
            "sparkperf_inconclusive = maybe in the ini file; valid are skip and fail",
        ),
        (
            ["-o", "sparkperf_missing_baseline=maybe"],
            "sparkperf_missing_baseline = maybe in the ini file; valid are fail and skip",
        ),
        (
            ["--sparkperf-baseline-ref=--output=x"],
            (
                "--sparkperf-baseline-ref: '--output=x' is not a git ref; give a branch, tag or commit, such "
                "as origin/main"
            ),
        ),
        (
            ["--sparkperf-record", "--sparkperf-baseline-ref=main"],
            (
                "--sparkperf-record and --sparkperf-baseline-ref=main do not go together: a run that takes "
                "its baseline from a git ref judges a change, and a change is not what later ones are judged "
                "by; leave one of them out"
            ),
        ),
        (
            ["--sparkperf-target", "fsat"],
            ("--sparkperf-target: target 'fsat' is not known; did you mean fast? targets are fast, slow"),
        ),
    ],
)
def test_unusable_values(suite: Suite, arguments: list[str], text: str) -> None:
    suite.yaml(YAML)
    suite.pytester.makepyfile(GATE)

    told = usage_error(suite.quick_run("-q", *arguments))

    assert told == f"ERROR: {text.replace('{path}', str(suite.pytester.path))}"


def test_an_unknown_choice_is_told_by_pytest_with_the_valid_ones(suite: Suite) -> None:
    suite.pytester.makepyfile(GATE)

    told = usage_error(suite.quick_run("--sparkperf-inconclusive=maybe"))

    assert "argument --sparkperf-inconclusive: invalid choice: 'maybe' (choose from " in told


def test_servers_that_outlive_a_ci_job_are_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.UsageError) as caught:
        pytester.parseconfigure("-p", "no:asyncio", "--sparkperf", "--sparkperf-keep-servers")

    assert str(caught.value) == (
        "--sparkperf-keep-servers is refused with CI set: a server that outlives its job holds the memory of "
        "every job after it; leave it out"
    )


@pytest.mark.parametrize(
    ("option", "feature"),
    [
        ("--sparkperf-json=out", "Reports"),
        ("--sparkperf-html=out", "Reports"),
        ("--sparkperf-markdown=out", "Reports"),
        ("--sparkperf-benchmark-json=out", "Reports"),
        ("--sparkperf-bmf=out", "Reports"),
    ],
)
def test_an_option_to_come_names_its_feature(pytester: pytest.Pytester, option: str, feature: str) -> None:
    with pytest.raises(pytest.UsageError) as caught:
        pytester.parseconfigure("-p", "no:asyncio", option)

    name = option.partition("=")[0]
    assert str(caught.value) == (
        f"{name} is not yet available (it comes with the feature {feature!r}); leave it out"
    )


@pytest.mark.parametrize("how", ["file", "target"])
def test_under_xdist_the_fault_is_told_as_well(suite: Suite, how: str) -> None:
    """The file is read before workers start; the targets, which hooks may add, in each of them."""
    suite.yaml(YAML)
    suite.pytester.makepyfile(GATE)
    if how == "file":
        told = usage_error(suite.run("-n2", "--sparkperf-config=no.yaml", attach=False))
        assert told.startswith("ERROR: --sparkperf-config=no.yaml: there is no file ")
        return

    result = suite.run("-n2", "--sparkperf-target=nope", attach=False)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["--sparkperf-target: target 'nope' is not known; targets are fast, slow"])


def test_with_ci_set_the_simulator_must_be_asked_for(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    suite.pytester.makepyfile(test_it=MARKED)

    result = suite.quick_run()

    assert usage_error(result) == (
        "ERROR: test_it.py::test_gate: no target is named, and with CI set the embedded simulator must be "
        "asked for by name; name a server with --sparkperf-url or in sparkperf.yaml, or put a target with "
        "launch: sim there"
    )
    result.stdout.fnmatch_lines(["sparkperf: no target is named, inconclusive gates are skipped"])


def test_several_targets_and_none_named(suite: Suite) -> None:
    suite.yaml(YAML)
    suite.pytester.makepyfile(test_it=MARKED)

    assert usage_error(suite.quick_run()) == (
        "ERROR: test_it.py::test_gate: no target is named; targets are fast, slow; name one by "
        "--sparkperf-target, by target= in the test or by default_target: in sparkperf.yaml"
    )


def test_faults_of_the_ini_file_and_yaml_do_not_touch_a_run_without_gates(suite: Suite) -> None:
    suite.yaml("version: 2\n")
    suite.pytester.makepyfile(GATE)
    suite.pytester.makeini("[pytest]\nsparkperf_config = no.yaml\nsparkperf_inconclusive = maybe\n")

    suite.plain_run().assert_outcomes(passed=1, skipped=1)
