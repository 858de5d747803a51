"""Prompts of the dataset sonnet: seeded, different, of the shipped lines."""

from __future__ import annotations

import random

from pytest_sparkperf.core.prompts.verses import LINES, verse_prompt


def test_a_prompt_holds_forty_different_lines() -> None:
    prompt = verse_prompt(3, random.Random(1).randrange)
    lines = prompt.text.split("\n\n")[1].splitlines()

    assert prompt.name == "sonnet-3"
    assert len(lines) == len(set(lines)) == 40
    assert set(lines) <= set(LINES)


def test_the_seed_decides_which() -> None:
    texts = [verse_prompt(0, random.Random(seed).randrange).text for seed in (1, 1, 2)]

    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_the_lines_are_five_whole_sonnets() -> None:
    assert len(LINES) == len(set(LINES)) == 5 * 14
    assert all(line and line == line.strip() for line in LINES)
