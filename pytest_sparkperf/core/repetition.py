"""Tells text that repeats itself, which a draft predicts best, from text that goes on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

# The longest block looked for: a paragraph that comes again and again has 30 to 60 tokens.
MAX_PERIOD = 64
# Twice happens in sound text (a heading and its echo, two rows of a table), three times in a row does not.
MIN_REPEATS = 3
DEGENERATE_SHARE = 1 / 3
# Below this a list of three short items would count.
MIN_TOKENS = 16


def repeated_share(tokens: Sequence[Hashable]) -> float:
    """Return the largest share of a sequence that is one block over and over, 0 to 1.

    A block has up to 64 tokens and comes at least three times without anything between; its last copy may be
    cut off. Costs 64 comparisons per token.
    """
    longest = 0
    for period in range(1, min(MAX_PERIOD, len(tokens) // MIN_REPEATS) + 1):
        length = _longest_run(tokens, period) + period
        if length >= MIN_REPEATS * period:
            longest = max(longest, length)
    return longest / len(tokens) if tokens else 0.0


def is_repetitive(tokens: Sequence[Hashable]) -> bool:
    """Tell whether at least a third of a sequence (of 16 tokens or more) is one block over and over."""
    return len(tokens) >= MIN_TOKENS and repeated_share(tokens) >= DEGENERATE_SHARE


def _longest_run(tokens: Sequence[Hashable], period: int) -> int:
    """Return the most tokens in a row that equal the one a period before them."""
    longest = run = 0
    for later, earlier in zip(tokens[period:], tokens, strict=False):
        run = run + 1 if later == earlier else 0
        longest = max(longest, run)
    return longest
