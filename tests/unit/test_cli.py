"""The console script: its list of commands, each of which can say how it is used."""

from __future__ import annotations

import pytest

from pytest_sparkperf.cli import main, usage

COMMANDS = ["baseline", "calibrate", "compare", "doctor", "facts", "metrics", "plan", "render", "sim", "stop"]


def test_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    out = capsys.readouterr().out
    assert out == f"{usage()}\n"
    listed = out.partition("commands (each has --help):\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == COMMANDS


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out == f"{usage()}\n"


def test_unknown_command_lists_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert capsys.readouterr().err == (
        f"sparkperf: there is no command 'bench'; valid are {', '.join(COMMANDS)}\n\n{usage()}\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_command_says_how_it_is_used(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main([command, "--help"])
    except SystemExit as ended:
        status = int(ended.code or 0)

    assert status == 0
    assert capsys.readouterr().out.startswith(f"usage: sparkperf {command}")
