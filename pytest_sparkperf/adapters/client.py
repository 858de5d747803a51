"""Sends one generation request and reads its stream: a fault of the server becomes an invalid RequestResult.

Bytes are stamped as they are read and parsed when the request is over. A watchdog timer looks at the progress
of each request, so that none waits forever and no read pays for it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.core.chunks import body_text
from pytest_sparkperf.core.load import Endpoint
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.stream import StreamReader
from pytest_sparkperf.core.validity import (
    CONNECT_FAILED,
    CONNECTION_LOST,
    GARBAGE,
    HTTP_ERROR,
    REJECTED,
    TIMEOUT,
    TRUNCATED,
    Expectation,
    Fault,
)

PATHS: Mapping[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

# A transport that knows when bytes arrived (rather than when they were read) puts a callable under this name
# into a response's extensions; it returns the time of the bytes handed out last, by the clock of the request.
STAMP_EXTENSION = "sparkperf_stamp"

# Prefill below this rate counts as a hang.
_SLOWEST_PREFILL_TOK_S = 1000
_SILENCE = "silence_timeout_s of the target"
# Fewer than any tokenizer needs on text, so that an estimate of prompt tokens is never too low.
_BYTES_PER_TOKEN = 3
# A role event may come long before the first token; with the second event the answer has begun.
_EVENTS_OF_A_START = 2
# What httpx raises for faults of the server or of the way to it; its other errors are mistakes of the caller.
_SERVER_ERRORS = (
    httpx.NetworkError,
    httpx.TimeoutException,
    httpx.RemoteProtocolError,
    httpx.DecodingError,
)
# How long the end of the body may take after [DONE]; reading it lets the connection be used again.
_DRAIN_S = 1.0
_OVERLOADED = 429


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One streamed request; ``body`` holds the API's fields, streaming ones are added.

    ``expected_tokens`` is the output length that must be reached, ``k`` the number of draft tokens,
    ``prompt_tokens`` what is known of the prompt's length; None where unknown or left open.
    """

    endpoint: Endpoint
    body: Mapping[str, Any]
    prompt_name: str = ""
    expected_tokens: int | None = None
    k: int | None = None
    prompt_tokens: int | None = None

    def encode(self) -> bytes:
        """Return the body as sent: usage with every event and token ids, unless it says otherwise."""
        options = {"include_usage": True, "continuous_usage_stats": True}
        options |= self.body.get("stream_options") or {}
        body = {"return_token_ids": True, **self.body, "stream": True, "stream_options": options}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    @property
    def expectation(self) -> Expectation:
        """What the answer is held against."""
        max_tokens = self.body.get("max_completion_tokens") or self.body.get("max_tokens")
        return Expectation(tokens=self.expected_tokens, max_tokens=max_tokens, k=self.k)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The longest waits of one request, in seconds; the first event gets 1 s per 1,000 prompt tokens more."""

    connect_s: float = 10.0
    first_event_s: float = 60.0
    gap_s: float = 60.0
    total_s: float = 3600.0

    def scaled(self, by: float) -> Timeouts:
        """Return the same waits on a clock that runs so many times as fast; connecting has its own."""
        return replace(
            self, first_event_s=self.first_event_s * by, gap_s=self.gap_s * by, total_s=self.total_s * by
        )

    @classmethod
    def of_silence(cls, silence_s: float) -> Timeouts:
        """Return the waits of a server that may be silent for so long."""
        return cls(first_event_s=silence_s, gap_s=silence_s)


_DEFAULT_TIMEOUTS = Timeouts()


def clock_of(time_scale: float) -> Callable[[], float]:
    """Return a clock on which ``time_scale`` seconds pass in one: that of a simulated machine."""
    return time.monotonic if time_scale == 1 else lambda: time.monotonic() * time_scale


@dataclass(frozen=True, slots=True)
class Recording:
    """A request that is over but not parsed, so that parsing can wait until no other stream is being read."""

    reader: StreamReader
    written_s: float
    status: int | None
    fault: Fault | None

    def result(self) -> RequestResult:
        """Parse and judge; to be called once."""
        return self.reader.finish(written_s=self.written_s, status=self.status, fault=self.fault)


async def stream_request(
    client: httpx.AsyncClient,
    request: GenerationRequest,
    *,
    timeouts: Timeouts = _DEFAULT_TIMEOUTS,
    clock: Callable[[], float] = time.monotonic,
) -> RequestResult:
    """Send a request, read its stream to the end and return what came, valid or not.

    Nothing the server does raises. A body that is no JSON raises TypeError or ValueError; cancelling passes.
    """
    return (await record_request(client, request, timeouts=timeouts, clock=clock)).result()


async def record_request(
    client: httpx.AsyncClient,
    request: GenerationRequest,
    *,
    timeouts: Timeouts = _DEFAULT_TIMEOUTS,
    clock: Callable[[], float] = time.monotonic,
    when: Callable[[], Awaitable[None]] | None = None,
) -> Recording:
    """Do what :func:`stream_request` does, but leave the parsing to the caller.

    ``when`` is awaited once the request is ready to be sent, so that one that is due at a time is not late by
    what it takes to build it.
    """
    exchange = _Exchange(request, timeouts, clock)
    if when is not None:
        await when()
        exchange.begin()
    try:
        async with _watched(exchange):
            await exchange.run(client)
    except TimeoutError:
        if exchange.overdue is None:  # not the watchdog's
            raise
        exchange.fault = exchange.fault or Fault(TIMEOUT, exchange.overdue)
    except _SERVER_ERRORS as error:
        exchange.fault = exchange.fault or _fault_of(error)
    return Recording(exchange.reader, exchange.written_s, exchange.status, exchange.fault)


class _Exchange:
    """The state of one request under way."""

    def __init__(self, request: GenerationRequest, timeouts: Timeouts, clock: Callable[[], float]) -> None:
        self.reader = StreamReader(
            request.endpoint, prompt_name=request.prompt_name, expectation=request.expectation
        )
        self.clock = clock
        self.begin()
        self.status: int | None = None
        self.fault: Fault | None = None
        self.overdue: str | None = None
        self._path = PATHS[request.endpoint]
        self._content = request.encode()
        self._timeouts = timeouts
        prompt_tokens = request.prompt_tokens or len(self._content) / _BYTES_PER_TOKEN
        self._first_event_s = timeouts.first_event_s + prompt_tokens / _SLOWEST_PREFILL_TOK_S

    def begin(self) -> None:
        """Count waits from now on."""
        self.started_s = self.written_s = self.clock()

    async def run(self, client: httpx.AsyncClient) -> None:
        async with client.stream(
            "POST",
            self._path,
            content=self._content,
            headers={"content-type": "application/json"},
            timeout=httpx.Timeout(None, connect=self._timeouts.connect_s),
            extensions={"trace": self._trace},
        ) as response:
            self.status = response.status_code
            if self.status != httpx.codes.OK:
                self.fault = _status_fault(self.status, b"")
                self.fault = _status_fault(self.status, await response.aread())
                return
            stamp = response.extensions.get(STAMP_EXTENSION, self.clock)
            feed = self.reader.feed
            async for data in response.aiter_raw():
                feed(data, stamp())

    async def _trace(self, event: str, _info: Mapping[str, Any]) -> None:
        # The stamp of `complete` would come a turn of the event loop after the bytes had left, a turn in
        # which a burst writes its other requests: every TTFT would look shorter than it is.
        if event.endswith("send_request_body.started"):
            self.written_s = self.clock()

    def deadline(self) -> tuple[float, str]:
        """Return when this request is overdue as things stand, and the text for it."""
        overall_s = self.started_s + self._timeouts.total_s
        step_s, text = self._step_deadline()
        if overall_s <= step_s:
            return overall_s, f"not finished within {self._timeouts.total_s:g} s, the longest of any request"
        return step_s, text

    def _step_deadline(self) -> tuple[float, str]:
        seen = self.reader.events_seen
        last_s = self.reader.last_event_s
        if self.reader.ended:
            return self.reader.last_read_s + _DRAIN_S, "the body did not end after the last event"
        if last_s is None or seen < _EVENTS_OF_A_START:
            wait_s = self._first_event_s
            text = (
                f"the answer did not begin within {wait_s:.1f} s ({_SILENCE} and 1 s per 1,000 prompt tokens)"
            )
            return self.written_s + wait_s, f"{text}; events seen: {seen}"
        wait_s = self._timeouts.gap_s
        return last_s + wait_s, f"no event for {wait_s:g} s after {seen} events ({_SILENCE})"


@asynccontextmanager
async def _watched(exchange: _Exchange) -> AsyncIterator[None]:
    """Raise TimeoutError inside once the exchange is overdue; a timer looks, so reads cost nothing more."""
    loop = asyncio.get_running_loop()
    timer: asyncio.Handle | None = None
    async with asyncio.timeout(None) as scope:

        def look() -> None:
            nonlocal timer
            deadline_s, text = exchange.deadline()
            left_s = deadline_s - exchange.clock()
            if left_s > 0:
                timer = loop.call_later(min(left_s, _DRAIN_S), look)
                return
            exchange.overdue = text
            scope.reschedule(loop.time())

        timer = loop.call_soon(look)
        try:
            yield
        finally:
            timer.cancel()


def _status_fault(status: int, body: bytes) -> Fault:
    """Tell what failed from what was refused: the first speaks of the server, the second of the request."""
    failed = status >= httpx.codes.INTERNAL_SERVER_ERROR or status == _OVERLOADED
    return Fault(HTTP_ERROR if failed else REJECTED, body_text(body) or f"HTTP {status} without a body")


def _fault_of(error: httpx.RequestError) -> Fault:
    """Map what the transport raised to a reason; httpx has one class for all breaches of HTTP."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return Fault(CONNECT_FAILED, text)
    if isinstance(error, httpx.TimeoutException):
        return Fault(TIMEOUT, text)
    if isinstance(error, httpx.NetworkError) or "without sending a response" in str(error):
        return Fault(CONNECTION_LOST, text)
    if "without sending complete message body" in str(error):
        return Fault(TRUNCATED, text)
    return Fault(GARBAGE, text)
