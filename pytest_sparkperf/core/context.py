"""Contexts: tokens that stand before a prompt as an earlier turn, and what a warm prefix cache must show.

With a warm cache the context is what is cached and the question behind it is what is computed. A question
that was sent before would be cached as well, so each begins with a number of its own, of constant length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_sparkperf.core.cachefacts import CacheFacts
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.workload import fit_prompt

# Sends of a prompt after which a cache that does not hold it never will.
MAX_SENDS = 4
_NUMBERS = 1_000_000
_REPLY = "I have read it. What would you like to know?"
# What blocks of unlike layers and a template's end may leave uncached.
_SLACK_BLOCKS = 2
# Contexts are hit whole each time, or not at all once they were evicted.
_KEPT_SHARE = 0.9


def is_numbered(load: Load) -> bool:
    """Tell whether each sending of a prompt begins with a number of its own."""
    return load.prefix_cache == "warm" and load.depth > 0


def numbered(prompt: Prompt, number: int) -> Prompt:
    """Return a prompt that begins with a number, always of as many characters."""
    return replace(prompt, text=f"{number % _NUMBERS:06d}. {prompt.text}")


def with_context(prompt: Prompt, context: str) -> Prompt:
    """Return a prompt behind an earlier turn that says the context, and a short answer to it."""
    return replace(prompt, history=(("user", context), ("assistant", _REPLY), *prompt.history))


def fit_context(
    prompt: Prompt,
    depth: int,
    count: Callable[[Prompt], int],
    make: Callable[[int, Callable[[str], int]], str],
) -> Prompt:
    """Return a prompt with a context of ``depth`` tokens before it, turns and template included.

    ``make(tokens, count)`` makes a text with which ``count`` gives that many tokens. Raises ConfigError for a
    depth that the turns alone exceed.
    """
    alone = count(prompt)
    least = count(with_context(prompt, "Hello")) - alone
    if depth < least:
        raise ConfigError(
            f"depth is {depth!r}, but a context of one word and its turns are {least} tokens: set depth to "
            f"{least} or more, or leave it out"
        )
    text = make(alone + depth, lambda context: count(with_context(prompt, context)))
    return with_context(prompt, text)


def context_text(material: Sequence[Prompt]) -> Callable[[int, Callable[[str], int]], str]:
    """Return a maker of contexts from texts, over and over until they are long enough."""
    return lambda tokens, count: fit_prompt(material[0], tokens, count, material[1:]).text


def is_warm(hits: float, tokens: int, facts: CacheFacts) -> bool:
    """Tell whether a send that found ``hits`` of ``tokens`` in the cache shows that it is there."""
    return hits > 0 and hits >= tokens - _SLACK_BLOCKS * (facts.block_tokens or 0)


def never_warm(prompt: Prompt, hits: float | None, tokens: int, facts: CacheFacts) -> str:
    """Say that the prefix cache did not take a prompt, and what its blocks have to do with it."""
    if hits is None:
        return (
            "the prefix cache was to be warm, and nothing shows whether it is: neither /metrics nor usage "
            "tells cache hits; start the server with --enable-prompt-tokens-details, or measure with a cold "
            "cache"
        )
    seen = (
        f"the prefix cache holds {hits:.0f} of the {tokens} tokens of {prompt.name!r} after {MAX_SENDS} sends"
    )
    if facts.enabled is False:
        return f"{seen}: it is off; start the server with --enable-prefix-caching"
    blocks = (
        f"it keeps whole blocks, here of {facts.block_tokens} tokens (block size)"
        if facts.block_tokens
        else "it keeps whole blocks, whose size the server does not tell (block size)"
    )
    return (
        f"{seen}: {blocks}; make what is to be cached several blocks long, and see that prefix caching is on "
        "and KV memory suffices"
    )


def went_cold(hits: float, expected: float) -> str | None:
    """Say that a pass found less in the cache than was there; None where it did not."""
    if hits >= _KEPT_SHARE * expected:
        return None
    return (
        f"{hits:.0f} of {expected:.0f} prompt tokens came from the prefix cache, which was warm before: its "
        "KV memory does not hold all prompts of this load; lower depth or concurrency, or give it more"
    )
