from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from pytest_sparkperf.sim.patterns import PatternError, matching_text


def numbers(seed: int) -> Callable[[], int]:
    random = Random(seed)
    return lambda: random.getrandbits(64)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\d{4}-\d{2}-\d{2}",
        r"(red|green|blue) (?:car|bike)s?",
        r"[A-Z][a-z]{2,5}[_.-]\w+",
        r"\(\d+\)\s*x{2,}",
        r"^a.b$",
        r"",
        r"a|b*|(c(d|e)){3}",
        r"[\d\]x-]+",
    ],
)
def test_a_text_matches_its_pattern(pattern: str) -> None:
    texts = [matching_text(pattern, numbers(seed)) for seed in range(50)]

    assert all(re.fullmatch(pattern, text) for text in texts)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"[^a]", "classes of what must not stand are not known"),
        (r"(?=a)a", "groups that begin with (? are not known"),
        (r"\bword\b", "the escape \\b is not known"),
        (r"(ab", "it ends too early"),
        (r"ab)", "a ')' stands alone"),
        (r"[ab", "it ends too early"),
        (r"*a", "a '*' repeats nothing"),
        (r"[]", "a class holds nothing"),
    ],
)
def test_refuses(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        matching_text(pattern, numbers(0))

    assert str(caught.value).startswith(message)
