"""Sends bursts: requests that start together, all sent again once when one of them was not valid."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts, record_request
from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.validity import SERVER_FAULTS


@dataclass(frozen=True, slots=True)
class Burst:
    """What one burst brought: the attempt that counts, and the invalid ones before it."""

    requests: tuple[RequestResult, ...]
    spoiled: tuple[RequestResult, ...] = ()

    @property
    def fault(self) -> RequestResult | None:
        """The first request of the attempt that counts which is not a valid measurement."""
        return next((request for request in self.requests if not request.valid), None)

    @property
    def attempts(self) -> tuple[RequestResult, ...]:
        """The first attempts, on which the server's error rate is counted."""
        return self.spoiled or self.requests

    @property
    def server_faults(self) -> int:
        """First attempts that the server, not the measurement, spoiled."""
        return sum(request.reason in SERVER_FAULTS for request in self.attempts)


async def fire(
    client: httpx.AsyncClient,
    build: Callable[[], Sequence[GenerationRequest]],
    timeouts: Timeouts,
    clock: Callable[[], float] = time.monotonic,
    checked: Callable[[RequestResult], RequestResult] = lambda request: request,
) -> Burst:
    """Send a burst, and once more when a request of it was not valid or did not pass ``checked``.

    ``build`` makes the requests anew for each attempt: a second one with the salt of the first would find its
    prompt in the prefix cache.
    """
    first = tuple(map(checked, await _together(client, build(), timeouts, clock)))
    if all(request.valid for request in first):
        return Burst(first)
    second = tuple(map(checked, await _together(client, build(), timeouts, clock)))
    return Burst(second, spoiled=first)


async def _together(
    client: httpx.AsyncClient,
    requests: Sequence[GenerationRequest],
    timeouts: Timeouts,
    clock: Callable[[], float],
) -> tuple[RequestResult, ...]:
    # Streams are parsed when all are over: parsing one would delay the stamps of the others.
    recordings = await asyncio.gather(
        *(record_request(client, request, timeouts=timeouts, clock=clock) for request in requests)
    )
    return tuple(recording.result() for recording in recordings)
