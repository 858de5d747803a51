"""The prompts of a default load: four texts of about 1,000 tokens, more and all different for bursts."""

from __future__ import annotations

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.prompts.conversation import CONVERSATION
from pytest_sparkperf.core.prompts.records import RECORDS
from pytest_sparkperf.core.prompts.source import SOURCE
from pytest_sparkperf.core.prompts.story import STORY
from pytest_sparkperf.core.prompts.template import Prompt

__all__ = ["MAX_CONCURRENCY", "Prompt", "burst_size", "shipped_prompts"]

_TEMPLATES = (SOURCE, CONVERSATION, RECORDS, STORY)
MAX_CONCURRENCY = sum(template.size for template in _TEMPLATES)


def shipped_prompts(concurrency: int) -> tuple[Prompt, ...]:
    """Return the prompts of one burst at this concurrency, all different; never fewer than the four kinds.

    The first four are code, chat, JSON and prose as written, later ones their variations in the same turn, so
    that every burst is an even mix. The same concurrency always gives the same texts. Raises ConfigError
    outside 1 to 256.
    """
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise ConfigError(
            f"concurrency is {concurrency!r}; the shipped prompts serve 1 to {MAX_CONCURRENCY} different "
            "requests at once: lower it, or name a dataset in the workload"
        )
    kinds = len(_TEMPLATES)
    count = burst_size(concurrency)
    return tuple(_TEMPLATES[index % kinds].variation(index // kinds) for index in range(count))


def burst_size(concurrency: int) -> int:
    """Return how many different prompts a load needs: one per request of a burst, and four for one stream."""
    return max(concurrency, len(_TEMPLATES))
