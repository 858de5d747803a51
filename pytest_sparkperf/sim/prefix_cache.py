"""Which blocks of which prompts the simulated KV cache still holds, with the salt as part of each block."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache

BLOCK_TOKENS = 16


class PrefixCache:
    """Blocks of 16 tokens chained from the prompt's start; when full, the least recently used go first."""

    def __init__(self, capacity_tokens: int) -> None:
        self._capacity = capacity_tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prompt_ids: Sequence[int], salt: str) -> int:
        """Return how many tokens of the prompt need no computing: whole blocks, never the last token."""
        usable = (len(prompt_ids) - 1) // BLOCK_TOKENS
        hits = 0
        for block in _chain(tuple(prompt_ids), salt)[:usable]:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            hits += 1
        return hits * BLOCK_TOKENS

    def store(self, token_ids: Sequence[int], salt: str) -> None:
        """Keep the whole blocks of a text that has been computed."""
        for block in _chain(tuple(token_ids), salt):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)


@lru_cache(maxsize=64)
def _chain(token_ids: tuple[int, ...], salt: str) -> tuple[int, ...]:
    """Return a key per whole block that depends on the salt and on every token before its end.

    Each prompt is looked up before it is stored; a long one must not cost its first token any time then.
    """
    keys, key = [], hash(salt)
    for start in range(0, len(token_ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        key = hash((key, token_ids[start : start + BLOCK_TOKENS]))
        keys.append(key)
    return tuple(keys)
