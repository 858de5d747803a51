"""The one place that imports httpx: how clients are opened; moving to its successor stays a line."""

from __future__ import annotations

import httpx

__all__ = ["PAGE_TIMEOUT_S", "auth_headers", "httpx", "open_async_client", "open_client"]

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
        limits=limits,
        trust_env=False,
        transport=transport,
    )
