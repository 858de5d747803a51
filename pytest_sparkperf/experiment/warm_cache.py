"""Fills a server's prefix cache with the prompts of a load, until its hit counter shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.core.cachefacts import CACHE_HITS, CacheFacts, cache_facts
from pytest_sparkperf.core.context import MAX_SENDS, is_warm, never_warm
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.exposition import difference
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.validity import SENTENCES
from pytest_sparkperf.experiment.counters import settled_scrape

Send = Callable[[Prompt], Awaitable[RequestResult]]


class WarmCache:
    """The cache of one server: what it was seen to hold of each prompt, by the prompt's name.

    ``exclusive``: all hits on the counter are ours; else only the answers' own usage tells.
    """

    def __init__(self, client: httpx.AsyncClient, *, exclusive: bool) -> None:
        self.hits: dict[str, float] = {}
        self._client = client
        self._exclusive = exclusive

    async def fill(self, prompts: Sequence[Prompt], depth: int, send: Send) -> None:
        """Send each prompt until the cache shows it, or with a depth what stands before it.

        Raises MeasurementError for one that it does not take.
        """
        for prompt in prompts:
            self.hits[prompt.name] = await self._fill_one(prompt, depth, send)

    async def _fill_one(self, prompt: Prompt, depth: int, send: Send) -> float:
        hits, tokens, facts = None, 0, CacheFacts()
        for _ in range(MAX_SENDS):
            before = await settled_scrape(self._client)
            answer = await send(prompt)
            after = await settled_scrape(self._client)
            if not answer.valid:
                reason = answer.reason or "not valid"
                seen = f" Seen: {answer.error}" if answer.error else ""
                raise MeasurementError(
                    f"a request that was to warm the prefix cache failed ({reason}): "
                    f"{SENTENCES.get(reason, '')}{seen}"
                )
            facts = cache_facts(after)
            tokens = depth or answer.prompt_tokens or 0
            hits = None if answer.cached_tokens is None else float(answer.cached_tokens)
            if self._exclusive and before is not None and after is not None:
                counted = difference(before, after).total(CACHE_HITS)
                hits = hits if counted is None else counted
            if hits is not None and is_warm(hits, tokens, facts):
                return hits
        raise MeasurementError(never_warm(prompt, hits, tokens, facts))
