"""The server's own counters around a measured window: tokens, cache hits, drafts."""

from __future__ import annotations

import asyncio
import time

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.core.errors import BusyError
from pytest_sparkperf.core.exposition import Scrape, difference, parse_exposition
from pytest_sparkperf.core.shared import ANSWERED

_TOKENS = "vllm:generation_tokens_total"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_POLL_S = 0.05
# How long to leave a busy server alone before the next look at it.
_BACK_OFF_S, _MAX_BACK_OFF_S = 0.25, 4.0
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


async def scrape_when_free(client: httpx.AsyncClient, url: str, patience_s: float) -> Scrape | None:
    """Read ``/metrics`` once nobody's request waits in the server's queue, looking less and less often.

    None where the server has no such page. Raises BusyError where others have waited for ``patience_s``.
    """
    started_s, pause_s = time.monotonic(), _BACK_OFF_S
    while True:
        now = await scrape(client)
        waiting = None if now is None else now.total(_WAITING)
        if not waiting:
            return now
        if time.monotonic() - started_s >= patience_s:
            raise BusyError(
                f"requests of others waited on {url} for {patience_s:g} s ({waiting:.0f} at the "
                f"last look), and traffic: shared sends none beside them; measure when the server is less "
                f"busy"
            )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_BACK_OFF_S)


async def scrape_after_answer(client: httpx.AsyncClient, before: Scrape | None) -> Scrape | None:
    """Read ``/metrics`` until a request more has been answered than before, for two seconds at most."""
    deadline_s = time.monotonic() + _GIVE_UP_S
    while True:
        now = await scrape(client)
        if now is None or before is None or time.monotonic() >= deadline_s:
            return now
        if difference(before, now).total(ANSWERED):
            return now
        await asyncio.sleep(_POLL_S)
