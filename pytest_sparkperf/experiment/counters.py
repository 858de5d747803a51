"""The server's own counters around a measured window: tokens, cache hits, drafts."""

from __future__ import annotations

import asyncio
import time

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.core.exposition import Scrape, parse_exposition

_TOKENS = "vllm:generation_tokens_total"
_RUNNING = "vllm:num_requests_running"
_POLL_S = 0.05
_GIVE_UP_S = 2.0


async def scrape(client: httpx.AsyncClient) -> Scrape | None:
    """Read ``/metrics`` once; None where the server has no such page or does not answer."""
    try:
        answer = await client.get("/metrics")
    except httpx.HTTPError:
        return None
    return parse_exposition(answer.text) if answer.status_code == httpx.codes.OK else None


async def settled_scrape(client: httpx.AsyncClient) -> Scrape | None:
    """Read ``/metrics`` until nothing runs and two readings agree: the last tokens are counted late.

    Gives up after two seconds and returns the last reading: a server with other traffic never comes to rest.
    """
    last = await scrape(client)
    deadline_s = time.monotonic() + _GIVE_UP_S
    while time.monotonic() < deadline_s:
        if last is None:
            return None
        await asyncio.sleep(_POLL_S)
        now = await scrape(client)
        if now is not None and not now.total(_RUNNING) and now.total(_TOKENS) == last.total(_TOKENS):
            return now
        last = now
    return last
