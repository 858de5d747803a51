"""The options themselves: registered without clashes, read from the ini file too."""

from __future__ import annotations

import pytest

from pytest_sparkperf.options import parse_url, read_settings


def configure(pytester: pytest.Pytester, *arguments: str) -> pytest.Config:
    """Configure pytest, without pytest-asyncio, which warns where its ini option is not set."""
    return pytester.parseconfigure("-p", "no:asyncio", *arguments)


NAMES = ("enabled", "config", "target", "urls", "inconclusive")


def test_every_option_has_a_destination_of_its_own(pytester: pytest.Pytester) -> None:
    config = configure(pytester, "-k", "some keyword", "-m", "some mark", "--sparkperf")

    ours = [name for name in vars(config.option) if "sparkperf" in name]
    assert all(name.startswith("sparkperf_") for name in ours)
    assert {f"sparkperf_{name}" for name in NAMES} <= set(ours)
    assert (config.getoption("-k"), config.getoption("-m")) == ("some keyword", "some mark")


def test_help_lists_the_options_in_a_group_of_their_own(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-p", "no:asyncio", "--help")

    result.stdout.fnmatch_lines(
        ["performance gates for vLLM servers:", "  --sparkperf *", "  --sparkperf-config=FILE*"]
    )
    result.stdout.fnmatch_lines(["  sparkperf_config (string):*", "  sparkperf_target (string):*"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:8000", (None, "http://127.0.0.1:8000")),
        ("3=http://127.0.0.1:8000/", (3, "http://127.0.0.1:8000")),
        ("0=https://host/v1", (0, "https://host")),
        ("http://host/?a", None),
        ("http://host/a=b", (None, "http://host/a=b")),
    ],
)
def test_a_url_may_say_its_k(text: str, expected: tuple[int | None, str] | None) -> None:
    if expected is None:
        with pytest.raises(pytest.UsageError, match=r"is not the root of a server; leave out everything"):
            parse_url(text)
    else:
        assert parse_url(text) == expected


def test_the_command_line_wins_over_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nsparkperf_config = a.yaml\nsparkperf_target = a\nsparkperf_inconclusive = fail\n"
    )
    for name in ("a", "b"):
        text = "version: 1\ntargets:\n  a: {launch: sim}\n  b: {launch: sim}\n"
        (pytester.path / f"{name}.yaml").write_text(text)

    from_ini = read_settings(configure(pytester, "--sparkperf"))
    from_both = read_settings(
        configure(
            pytester,
            "--sparkperf",
            "--sparkperf-config=b.yaml",
            "--sparkperf-target=b",
            "--sparkperf-inconclusive=skip",
        )
    )

    assert (from_ini.config_file, from_ini.target, from_ini.inconclusive) == (
        pytester.path / "a.yaml",
        "a",
        "fail",
    )
    assert (from_both.config_file, from_both.target, from_both.inconclusive) == (
        pytester.path / "b.yaml",
        "b",
        "skip",
    )


@pytest.mark.parametrize(
    ("value", "ci"), [("true", True), ("1", True), ("0", False), ("false", False), ("", False)]
)
def test_ci_is_what_ci_systems_set(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str, ci: bool
) -> None:
    monkeypatch.setenv("CI", value)

    assert read_settings(configure(pytester, "--sparkperf")).ci is ci
