"""Requests side by side on one client: connections are used again, given back once, and all closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.http import httpx, open_async_client

FLAGS = ("--unpaced", "--jit-s", "0")


class Connections:
    """Serves small pages and counts the connections that were opened and are open."""

    def __init__(self) -> None:
        self.opened = 0
        self.open = 0

    async def serve(self, what: Callable[[str], Awaitable[None]]) -> None:
        """Do something with a client's root while serving."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await what(f"http://127.0.0.1:{port}")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"/broken" in head:
                    return
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except asyncio.IncompleteReadError:
            pass
        finally:
            self.open -= 1
            writer.close()


def test_a_connection_is_used_again_and_as_many_are_opened_as_are_needed_at_once() -> None:
    seen = Connections()

    async def check(url: str) -> None:
        async with open_async_client(url) as client:
            for _ in range(3):
                assert (await client.get("/")).text == "ok"
            assert seen.opened == 1
            assert [one.text for one in await asyncio.gather(*(client.get("/") for _ in range(20)))] == [
                "ok"
            ] * 20
            assert seen.opened == 20
            await asyncio.gather(*(client.get("/") for _ in range(20)))
            assert seen.opened == 20

    asyncio.run(seen.serve(check))


def test_without_keep_alive_none_outlives_its_request() -> None:
    seen = Connections()

    async def check(url: str) -> None:
        async with open_async_client(url, keep_alive=False) as client:
            for _ in range(3):
                assert (await client.get("/")).text == "ok"
        assert seen.opened == 3

    asyncio.run(seen.serve(check))


def test_a_request_that_fails_or_is_given_up_leaves_its_lane_to_others() -> None:
    seen = Connections()

    async def check(url: str) -> None:
        async with open_async_client(url) as client:
            for _ in range(3):
                with pytest.raises(httpx.RemoteProtocolError):
                    await client.get("/broken")
            async with client.stream("GET", "/") as response:
                assert response.status_code == 200
            assert (await client.get("/")).text == "ok"
        transport = client._transport
        assert vars(transport)["_all"] == []

    asyncio.run(seen.serve(check))


def test_streams_side_by_side_are_whole(simulator: StartSimulator) -> None:
    url = simulator(*FLAGS).url
    body = {"prompt": "Count.", "max_tokens": 5, "ignore_eos": True, "stream": True}

    async def read() -> list[int]:
        async with open_async_client(url) as client:

            async def one() -> int:
                async with client.stream("POST", "/v1/completions", json=body) as response:
                    return (await response.aread()).count(b"data: ")

            return await asyncio.gather(*(one() for _ in range(16)))

    counts = asyncio.run(read())

    assert len(set(counts)) == 1
    assert counts[0] >= 6
