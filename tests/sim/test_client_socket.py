"""The client against servers that misbehave on a real socket."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts, stream_request
from pytest_sparkperf.adapters.http import httpx, open_async_client
from pytest_sparkperf.core.result import RequestResult

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
Handler = Callable[[Reader, Writer], Awaitable[None]]

# What the watchdog says of its limits.
SILENCE = "(silence_timeout_s of the target)"
BEGINNING = "(silence_timeout_s of the target and 1 s per 1,000 prompt tokens)"
REQUEST = GenerationRequest("chat", {"model": "m", "messages": []})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
FINISH = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


SOUND = HEAD + chunk(TOKEN) + chunk(TOKEN) + chunk(FINISH + USAGE) + chunk(DONE) + END


class Server:
    """Runs one handler per request and counts connections; the handler writes raw bytes."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.client_left = asyncio.Event()

    async def connected(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await read_request(reader):
                await self._handler(reader, writer)
        except ConnectionError:
            pass
        finally:
            self.client_left.set()
            writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def read_request(reader: Reader) -> bool:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return False
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return True


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    server = Server(handler)
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        async with open_async_client(f"http://127.0.0.1:{port}") as client:
            yield server, client
    finally:
        listening.close()
        await server.stop()


def ask(handler: Handler, timeouts: Timeouts = Timeouts()) -> RequestResult:  # noqa: B008 - frozen
    async def run() -> RequestResult:
        async with serving(handler) as (_, client):
            return await stream_request(client, REQUEST, timeouts=timeouts)

    return asyncio.run(run())


def answering(*writes: bytes, close: bool = False) -> Handler:
    async def handler(_reader: Reader, writer: Writer) -> None:
        for data in writes:
            writer.write(data)
            await writer.drain()
        if close:
            writer.close()

    return handler


def stalling(*writes: bytes) -> Handler:
    async def handler(reader: Reader, writer: Writer) -> None:
        await answering(*writes)(reader, writer)
        await reader.read()  # until the client leaves

    return handler


def test_a_sound_stream_is_read_and_timed() -> None:
    answer = ask(answering(SOUND))
    assert (answer.valid, answer.text, answer.output_tokens, answer.status) == (True, "aa", 2, 200)
    assert answer.ttft_ms is not None
    assert answer.ttft_ms > 0


def test_the_connection_is_used_again_after_a_stream_was_read_to_its_end() -> None:
    async def run() -> int:
        async with serving(answering(SOUND)) as (server, client):
            for _ in range(3):
                assert (await stream_request(client, REQUEST)).valid
            return server.connections

    assert asyncio.run(run()) == 1


def test_headers_and_events_that_dribble_byte_by_byte_are_read() -> None:
    answer = ask(answering(*(bytes([byte]) for byte in SOUND)))
    assert (answer.valid, answer.text) == (True, "aa")


def test_a_port_where_nobody_listens() -> None:
    async def run() -> RequestResult:
        with socket.socket() as bound:  # bound, not listening: nobody else can take the port meanwhile
            bound.bind(("127.0.0.1", 0))
            async with open_async_client(f"http://127.0.0.1:{bound.getsockname()[1]}") as client:
                return await stream_request(client, REQUEST)

    answer = asyncio.run(run())
    assert (answer.reason, answer.status, answer.token_events) == ("connect_failed", None, 0)
    assert answer.error == "ConnectError: All connection attempts failed"


def test_a_server_that_closes_without_an_answer() -> None:
    answer = ask(answering(close=True))
    assert answer.reason == "connection_lost"
    assert answer.error == "RemoteProtocolError: Server disconnected without sending a response."


def test_a_connection_reset_in_mid_stream() -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await answering(HEAD + chunk(TOKEN))(reader, writer)
        await asyncio.sleep(0)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    answer = ask(handler)
    assert (answer.reason, answer.error) == ("connection_lost", "ReadError")


def test_a_body_that_ends_before_its_chunked_encoding_does() -> None:
    answer = ask(answering(HEAD + chunk(TOKEN), close=True))
    assert (answer.reason, answer.text) == ("truncated", "a")
    assert answer.error == (
        "RemoteProtocolError: peer closed connection without sending complete message body"
        " (incomplete chunked read)"
    )


def test_a_body_that_ends_properly_in_the_middle_of_an_answer() -> None:
    answer = ask(answering(HEAD + chunk(TOKEN) + END))
    assert (answer.reason, answer.error) == ("truncated", "the stream ended after 1 token events")


def test_a_complete_answer_counts_though_the_connection_broke_after_it() -> None:
    assert ask(answering(HEAD + chunk(TOKEN + FINISH + USAGE), close=True)).valid


@pytest.mark.parametrize("status", ["503 Service Unavailable", "404 Not Found"])
def test_http_errors(status: str) -> None:
    body = b'{"error": {"message": "no", "code": 1}}'
    answer = ask(answering(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body))
    assert answer.status == int(status[:3])
    assert answer.reason == ("rejected" if status.startswith("4") else "http_error")
    assert answer.error == "no (code 1)"


def test_an_http_error_whose_body_never_comes_is_still_an_http_error() -> None:
    head = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 10\r\n\r\n"
    answer = ask(stalling(head), Timeouts(first_event_s=1.0))
    assert (answer.reason, answer.error) == ("http_error", "HTTP 500 without a body")


@pytest.mark.parametrize(
    "data", [b"\x00\x01\x02\xff" * 100 + b"\r\n\r\n", HEAD + b"zz\r\n", HEAD + chunk(b"<html></html>") + END]
)
def test_garbage(data: bytes) -> None:
    answer = ask(answering(data, close=True))
    assert (answer.valid, answer.reason) == (False, "garbage")


def test_garbage_among_the_events() -> None:
    answer = ask(answering(HEAD + chunk(TOKEN + b"data: \xff\xfe\n\n" + FINISH + USAGE + DONE) + END))
    assert (answer.reason, answer.error) == ("bad_json", r"an event was b'\xff\xfe'")


@pytest.mark.parametrize(
    ("writes", "timeouts", "error"),
    [
        (
            (),
            Timeouts(first_event_s=0.1),
            f"the answer did not begin within 0.1 s {BEGINNING}; events seen: 0",
        ),
        (
            (HEAD,),
            Timeouts(first_event_s=0.1),
            f"the answer did not begin within 0.1 s {BEGINNING}; events seen: 0",
        ),
        (
            (HEAD + chunk(TOKEN + TOKEN),),
            Timeouts(gap_s=0.1),
            f"no event for 0.1 s after 2 events {SILENCE}",
        ),
    ],
)
def test_a_server_that_stalls(writes: tuple[bytes, ...], timeouts: Timeouts, error: str) -> None:
    answer = ask(stalling(*writes), timeouts)
    assert (answer.reason, answer.error) == ("timeout", error)


def test_keep_alive_comments_are_no_progress() -> None:
    async def handler(reader: Reader, writer: Writer) -> None:
        await answering(HEAD + chunk(TOKEN + TOKEN))(reader, writer)
        while not reader.at_eof():
            writer.write(chunk(b": ping\n\n"))
            await writer.drain()
            await asyncio.sleep(0.01)

    answer = ask(handler, Timeouts(gap_s=0.2))
    assert (answer.reason, answer.error) == (
        "timeout",
        f"no event for 0.2 s after 2 events {SILENCE}",
    )


def test_a_request_that_timed_out_is_taken_off_the_server() -> None:
    async def run() -> None:
        async with serving(stalling(HEAD)) as (server, client):
            answer = await stream_request(client, REQUEST, timeouts=Timeouts(first_event_s=0.05))
            assert answer.reason == "timeout"
            await asyncio.wait_for(server.client_left.wait(), timeout=10)

    asyncio.run(run())


def test_a_request_that_was_cancelled_is_taken_off_the_server() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def handler(reader: Reader, writer: Writer) -> None:
            begun.set()
            await stalling(HEAD + chunk(TOKEN))(reader, writer)

        async with serving(handler) as (server, client):
            task = asyncio.create_task(stream_request(client, REQUEST))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.client_left.wait(), timeout=10)

    asyncio.run(run())
