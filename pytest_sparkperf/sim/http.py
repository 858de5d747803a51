"""HTTP/1.1 over asyncio and h11: one protocol object per connection, one exchange per request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import h11

SERVER_NAME = "sparkperf-sim"
JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, complete."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]  # names in lower case
    body: bytes


Handler = Callable[[HttpRequest, "Exchange"], None]


class Exchange:
    """The answer to one request: :meth:`respond`, or :meth:`start_stream`, :meth:`send` and :meth:`end`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.on_disconnect: Callable[[], None] | None = None

    def respond(
        self,
        status: int,
        body: bytes,
        content_type: str | None = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a whole answer."""
        fields = {"content-length": str(len(body))} | ({"content-type": content_type} if content_type else {})
        self._connection.write(_response(status, fields | dict(headers or {})))
        if body:
            self._connection.write(h11.Data(data=body))
        self.end()

    def start_stream(self, *, head_s: float = 0.0) -> None:
        """Send status 200 and the headers of an event stream, spread over ``head_s`` seconds as a fault."""
        fields = {"content-type": EVENT_STREAM, "transfer-encoding": "chunked"}
        if head_s:
            self._connection.drip(head_s)
        self._connection.write(_response(200, fields))

    def send(self, data: bytes) -> None:
        """Send one part of a stream in a write of its own."""
        self._connection.write(h11.Data(data=data))

    def end(self) -> None:
        """Complete the answer; the connection is free for its next request."""
        self.on_disconnect = None
        self._connection.write(h11.EndOfMessage())
        self._connection.exchange_ended()

    def cut(self) -> None:
        """Close the connection with the answer incomplete."""
        self.on_disconnect = None
        self._connection.close()


class Connection(asyncio.Protocol):
    """Reads requests off one connection, in order, and hands each to ``handler`` with its exchange."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._h11 = h11.Connection(h11.SERVER)
        self._transport: asyncio.Transport | None = None
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._exchange: Exchange | None = None
        # The fault that lets a head leave byte by byte: what waits behind it.
        self._drip_s = 0.0
        self._dripping = False
        self._behind: list[bytes] = []
        self._close_behind = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and let each write leave at once.

        asyncio sees to that only for sockets that name their protocol; without it a token would wait for the
        acknowledgement of the one before, up to 40 ms.
        """
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Parse what came and dispatch each request that is complete."""
        self._h11.receive_data(data)
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Tell the exchange in progress that nobody listens any more."""
        self._transport = None
        if self._exchange is not None and self._exchange.on_disconnect is not None:
            self._exchange.on_disconnect()

    def write(self, event: h11.Event) -> None:
        """Send one event of the answer; nothing once the connection is gone."""
        if self._transport is None or self._transport.is_closing():
            return
        data = self._h11.send(event)
        if data and self._drip_s and not self._dripping:
            self._start_drip(data)
        elif data and self._dripping:
            self._behind.append(data)
        elif data:
            self._transport.write(data)

    def drip(self, seconds: float) -> None:
        """Let what is written next leave byte by byte; all that follows waits for it."""
        self._drip_s = seconds

    def _start_drip(self, data: bytes) -> None:
        self._dripping = True
        gap_s = self._drip_s / len(data)
        loop = asyncio.get_running_loop()
        for at, byte in enumerate(data):
            loop.call_later(at * gap_s, self._write_now, bytes([byte]))
        loop.call_later(self._drip_s, self._end_drip)

    def _end_drip(self) -> None:
        self._drip_s, self._dripping = 0.0, False
        self._write_now(b"".join(self._behind))
        self._behind.clear()
        if self._close_behind:
            self.close()

    def _write_now(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def exchange_ended(self) -> None:
        """Go on with the next request of a kept-alive connection, or close."""
        self._exchange = None
        if self._h11.our_state is h11.MUST_CLOSE or self._h11.their_state is not h11.DONE:
            self.close()
            return
        self._h11.start_next_cycle()
        # Not from within the handler of the request before: pipelined ones would nest.
        asyncio.get_running_loop().call_soon(self._pump)

    def close(self) -> None:
        """Close once what was written has left."""
        self._close_behind = self._dripping
        if self._dripping:
            return
        if self._transport is not None:
            self._transport.close()

    def _pump(self) -> None:
        while self._transport is not None:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError:
                self._refuse_garbage()
                return
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.Request):
                self._request, self._body = event, []
                if self._h11.they_are_waiting_for_100_continue:
                    self.write(h11.InformationalResponse(status_code=100, headers=[]))
            elif isinstance(event, h11.Data):
                self._body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._dispatch()
            else:
                self.close()
                return

    def _dispatch(self) -> None:
        request = self._request
        assert request is not None
        target = urlsplit(request.target.decode("ascii", "replace"))
        self._exchange = Exchange(self)
        self._handler(
            HttpRequest(
                method=request.method.decode(),
                path=target.path,
                query=parse_qs(target.query),
                headers={name.decode(): value.decode("latin-1") for name, value in request.headers},
                body=b"".join(self._body),
            ),
            self._exchange,
        )

    def _refuse_garbage(self) -> None:
        if self._h11.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            text = b"Invalid HTTP request received."
            fields = {"content-length": str(len(text)), "content-type": "text/plain", "connection": "close"}
            self.write(_response(400, fields))
            self.write(h11.Data(data=text))
            self.write(h11.EndOfMessage())
        self.close()


def _response(status: int, fields: Mapping[str, str]) -> h11.Response:
    headers = {"date": formatdate(usegmt=True), "server": SERVER_NAME} | dict(fields)
    return h11.Response(
        status_code=status, headers=list(headers.items()), reason=HTTPStatus(status).phrase.encode()
    )
