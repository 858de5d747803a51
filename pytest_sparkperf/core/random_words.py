"""Random prompts of an exact length: words that are one token each, drawn at random, counted by the server.

The words are tokens that the server's tokenizer makes of ordinary text, so none is a control token and their
text is valid whatever the tokenizer. A word keeps its token when it is joined to others, so that a count
misses the length by little; what is missed is added or taken away until the server's count is exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from pytest_sparkperf.core.errors import ConfigError, ServerError

# How tokenizers write the space in front of a word: byte-level ones, SentencePiece, and plain text.
_WORD = re.compile(r"[\u0120\u2581 ]([A-Za-z]{2,})")
# Fewer words would make a text that drafts better than random tokens do.
_FEWEST_WORDS = 100
# A count that is off moves by whole tokens; one that does not settle by then swings between two texts.
_TRIES = 40

Draw = Callable[[int], int]


def one_token_words(token_texts: Iterable[str]) -> tuple[str, ...]:
    """Return the words among a tokenizer's tokens, sorted; raises ServerError where they are too few."""
    found = (_WORD.fullmatch(text) for text in token_texts)
    words = sorted({match.group(1) for match in found if match})
    if len(words) < _FEWEST_WORDS:
        raise ServerError(
            f"the server's tokenizer makes whole words of {len(words)} tokens of the shipped prompts, and a "
            f"random prompt is drawn from {_FEWEST_WORDS} or more; use another dataset, or leave dataset out"
        )
    return tuple(words)


def random_text(
    words: Sequence[str], prompt_tokens: int, count_tokens: Callable[[str], int], draw: Draw
) -> str:
    """Return words drawn at random whose text has exactly ``prompt_tokens`` tokens.

    ``count_tokens`` counts a text as the server does, chat template included; ``draw(n)`` returns a number
    from 0 to n - 1. Raises ConfigError for a length that the template alone exceeds, ServerError for one
    that the tokenizer cannot hit.
    """
    drawn = [words[draw(len(words))]]
    least = count_tokens(drawn[0])
    if least > prompt_tokens:
        raise ConfigError(
            f"prompt_tokens is {prompt_tokens!r}, but one word and the chat template are {least} tokens: set "
            f"prompt_tokens to {least} or more"
        )
    missing = prompt_tokens - least
    for _ in range(_TRIES):
        if missing > 0:
            drawn += [words[draw(len(words))] for _ in range(missing)]
        else:
            # With the words that are too many goes one that may have merged with its neighbour.
            del drawn[max(1, len(drawn) + missing - 1) :]
        missing = prompt_tokens - count_tokens(" ".join(drawn))
        if missing == 0:
            return " ".join(drawn)
    raise ServerError(
        f"the server's tokenizer counts no random text as exactly {prompt_tokens} tokens: set prompt_tokens "
        "to another length, or leave dataset out"
    )
