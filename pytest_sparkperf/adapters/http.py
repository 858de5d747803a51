"""The one place that imports httpx: how clients are opened; moving to its successor stays a line."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import httpx

__all__ = ["PAGE_TIMEOUT_S", "LaneTransport", "auth_headers", "httpx", "open_async_client", "open_client"]

# Proxies and .netrc of the environment must never stand between a measurement and its server, and a
# compressed stream would arrive in lumps of the compressor's making.
_HEADERS = {"accept-encoding": "identity", "user-agent": "pytest-sparkperf"}
# No pool limit: a client that queues requests itself would measure its own queue.
# Idle connections go before uvicorn drops them (5 s): one that is reused just as the server closes it
# would count as a fault of the server.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=4)
# One answer of the server's small pages (models, version, metrics).
PAGE_TIMEOUT_S = 10.0


def auth_headers(api_key: str | None) -> dict[str, str]:
    """Return the headers of every request: ours, and the bearer token where there is a key."""
    return _HEADERS | ({"authorization": f"Bearer {api_key}"} if api_key else {})


def open_client(
    base_url: str,
    *,
    api_key: str | None = None,
    timeout_s: float | None = PAGE_TIMEOUT_S,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """Open a client on a server's root; the caller closes it."""
    return httpx.Client(
        base_url=base_url,
        headers=auth_headers(api_key),
        timeout=timeout_s,
        limits=_LIMITS,
        trust_env=False,
        transport=transport,
    )


def open_async_client(
    base_url: str,
    *,
    api_key: str | None = None,
    timeout_s: float | None = PAGE_TIMEOUT_S,
    transport: httpx.AsyncBaseTransport | None = None,
    keep_alive: bool = True,
) -> httpx.AsyncClient:
    """Open an asynchronous client on a server's root; the caller closes it.

    Without ``keep_alive`` no connection outlives its request, so that the client may be closed from another
    event loop than the one it was used in.
    """
    limits = _LIMITS if keep_alive else httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(
        base_url=base_url,
        headers=auth_headers(api_key),
        timeout=timeout_s,
        trust_env=False,
        transport=transport or LaneTransport(limits, _verification(base_url)),
    )


def _verification(base_url: str) -> ssl.SSLContext | bool:
    """Return how certificates are checked; it takes long to build, so not where there are none."""
    return httpx.create_ssl_context(trust_env=False) if base_url.startswith("https:") else False


class LaneTransport(httpx.AsyncBaseTransport):
    """Sends each request over a lane, a pool of its own, that no other request is using.

    httpcore's pool looks at all of its connections at the start and end of each request, and at all of them
    again for each idle one: at 256 streams that takes tens of milliseconds, in which no stream is read and
    none is sent. The lane that was used last is taken first: its connection is likely still open.
    """

    def __init__(self, limits: httpx.Limits, verify: ssl.SSLContext | bool) -> None:
        self._limits = limits
        self._verify = verify
        self._idle: list[httpx.AsyncHTTPTransport] = []
        self._all: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its lane is free again when the response is closed."""
        lane = self._idle.pop() if self._idle else self._open()
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            self._idle.append(lane)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_LaneStream(response.stream, lambda: self._idle.append(lane)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every lane."""
        async with AsyncExitStack() as stack:
            for lane in self._all:
                stack.push_async_callback(lane.aclose)
        self._idle.clear()
        self._all.clear()

    def _open(self) -> httpx.AsyncHTTPTransport:
        lane = httpx.AsyncHTTPTransport(verify=self._verify, trust_env=False, limits=self._limits)
        self._all.append(lane)
        return lane


class _LaneStream(httpx.AsyncByteStream):
    """A response's bytes; closing them gives the lane back, once."""

    def __init__(self, inner: httpx.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._inner = inner
        self._give_back = give_back
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._inner.__aiter__()

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            if not self._closed:
                self._closed = True
                self._give_back()
