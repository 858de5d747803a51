from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.shell_words import ShellCommand, repaired, split_command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve m --port 8000", ["vllm", "serve", "m", "--port", "8000"]),
        ("vllm serve m \\\n  --port 8000\n", ["vllm", "serve", "m", "--port", "8000"]),
        ("a \\   \n  b \\\t\n c \\", ["a", "b", "c"]),
        ('a \'{"k": 3}\' "x y"', ["a", '{"k": 3}', "x y"]),
        (r'a "say \"hi\" \\ \n" b\ c', ["a", 'say "hi" \\ \\n', "b c"]),
        ('# first\na b # {"c": 1}\n', ["a", "b"]),
        ("a b#c 'd # e'", ["a", "b#c", "d # e"]),
        ("a ''", ["a", ""]),
        ("exec a --x=[1,2] *", ["a", "--x=[1,2]", "*"]),
        ("", []),
    ],
)
def test_plain_commands_are_split_without_a_shell(text: str, words: list[str]) -> None:
    assert split_command(text) == ShellCommand(tuple(words))


def test_assignments_and_exports_become_variables() -> None:
    command = split_command("export A=1 B='x y'\nC=2 exec vllm serve m --env D=4")

    assert command == ShellCommand(
        ("vllm", "serve", "m", "--env", "D=4"), (("A", "1"), ("B", "x y"), ("C", "2"))
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm serve $MODEL", "$"),
        ('vllm serve "${MODEL}"', "$"),
        ("vllm serve `cat m`", "`"),
        ("vllm serve m | tee log", "|"),
        ("vllm serve m > log", ">"),
        ("vllm serve m &", "&"),
        ("cd /x && vllm serve m", "several programs"),
        ("pip install x; vllm serve m", "several programs"),
    ],
)
def test_what_only_a_shell_can_do_is_named(text: str, why: str) -> None:
    assert split_command(text).needs_shell == why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 'b", "a single quote in the command is never closed; close it"),
        ('a "b', "a double quote in the command is never closed; close it"),
    ],
)
def test_a_quote_that_is_never_closed_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_command(text)

    assert str(caught.value) == message


def test_continued_lines_are_joined() -> None:
    assert repaired("a \\ \n b \\\t\n c \\") == "a   b   c "


@given(st.lists(st.text("ab '\"{}$#;&|\n=", min_size=1), min_size=1))
def test_what_was_quoted_comes_out_as_it_was(words: list[str]) -> None:
    quoted = "program " + " ".join(map(shlex.quote, words))

    assert split_command(quoted).words == ("program", *words)
