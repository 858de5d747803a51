"""Contexts before prompts, numbers in front of questions, and what a warm cache must show."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.cachefacts import CacheFacts
from pytest_sparkperf.core.context import (
    context_text,
    fit_context,
    is_numbered,
    is_warm,
    never_warm,
    numbered,
    went_cold,
)
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import Prompt

ASK = Prompt("ask", "What now?")
MATERIAL = (Prompt("one", "alpha beta gamma delta"), Prompt("two", "epsilon zeta eta theta"))
BLOCKS = CacheFacts(enabled=True, block_tokens=16)


def count(prompt: Prompt) -> int:
    """Count as a server would whose turns cost 5 tokens each and whose words are one token."""
    turns = (*prompt.history, ("user", prompt.text))
    return sum(5 + len(text.split()) for _, text in turns)


def test_a_context_has_the_depth_and_leaves_the_prompt_alone() -> None:
    prompt = fit_context(ASK, 200, count, context_text(MATERIAL))

    assert count(prompt) == count(ASK) + 200
    assert (prompt.name, prompt.text) == ("ask", "What now?")
    assert [role for role, _ in prompt.history] == ["user", "assistant"]
    assert prompt.history[0][1].split()[:6] == ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


def test_a_depth_that_the_turns_exceed_says_the_least() -> None:
    with pytest.raises(ConfigError) as caught:
        fit_context(ASK, 20, count, context_text(MATERIAL))

    assert str(caught.value) == (
        "depth is 20, but a context of one word and its turns are 21 tokens: set depth to 21 or more, or "
        "leave "
        "it out"
    )


def test_only_questions_behind_a_warm_context_are_numbered() -> None:
    assert is_numbered(Load(depth=100, prefix_cache="warm"))
    assert not is_numbered(Load(depth=100))
    assert not is_numbered(Load(prefix_cache="warm"))
    assert [numbered(ASK, n).text for n in (7, 123_456_789)] == ["000007. What now?", "456789. What now?"]


@pytest.mark.parametrize(
    ("hits", "tokens", "facts", "warm"),
    [
        (992, 1000, BLOCKS, True),
        (968, 1000, BLOCKS, True),
        (960, 1000, BLOCKS, False),
        (0, 20, BLOCKS, False),
        (1000, 1000, CacheFacts(), True),
        (992, 1000, CacheFacts(), False),
    ],
)
def test_a_cache_is_warm_when_all_but_its_last_blocks_are_hit(
    hits: float, tokens: int, facts: CacheFacts, warm: bool
) -> None:
    assert is_warm(hits, tokens, facts) is warm


@pytest.mark.parametrize(
    ("hits", "facts", "text"),
    [
        (
            0.0,
            CacheFacts(enabled=True, block_tokens=1056),
            (
                "the prefix cache holds 0 of the 900 tokens of 'ask' after 4 sends: it keeps whole blocks, "
                "here of "
                "1056 tokens (block size); make what is to be cached several blocks long, and see that "
                "prefix "
                "caching is on and KV memory suffices"
            ),
        ),
        (
            3.0,
            CacheFacts(),
            (
                "the prefix cache holds 3 of the 900 tokens of 'ask' after 4 sends: it keeps whole blocks, "
                "whose "
                "size the server does not tell (block size); make what is to be cached several blocks long, "
                "and "
                "see that prefix caching is on and KV memory suffices"
            ),
        ),
        (
            0.0,
            CacheFacts(enabled=False, block_tokens=16),
            (
                "the prefix cache holds 0 of the 900 tokens of 'ask' after 4 sends: it is off; start the "
                "server "
                "with --enable-prefix-caching"
            ),
        ),
        (
            None,
            CacheFacts(),
            (
                "the prefix cache was to be warm, and nothing shows whether it is: neither /metrics nor "
                "usage "
                "tells cache hits; start the server with --enable-prompt-tokens-details, or measure with a "
                "cold "
                "cache"
            ),
        ),
    ],
)
def test_a_cache_that_stays_cold_is_told_with_its_blocks(
    hits: float | None, facts: CacheFacts, text: str
) -> None:
    assert never_warm(ASK, hits, 900, facts) == text


def test_a_cache_that_lost_a_prompt_is_told() -> None:
    assert went_cold(960, 1000) is None
    assert went_cold(500, 1000) == (
        "500 of 1000 prompt tokens came from the prefix cache, which was warm before: its KV memory does not "
        "hold all prompts of this load; lower depth or concurrency, or give it more"
    )
