"""A proxy in front of a server that makes every answer take twice as long, from its first byte on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

_SLOWER = 2.0


@contextmanager
def half_speed(url: str) -> Iterator[str]:
    """Yield the root of a proxy that serves ``url`` at half its speed."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="half-speed", daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_serve(url), loop).result(10)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _serve(url: str) -> asyncio.Server:
    parts = urlsplit(url)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(parts.hostname, parts.port)
        exchange = _Exchange()
        await asyncio.gather(
            exchange.ask(reader, upstream[1]),
            exchange.hear(upstream[0]),
            exchange.answer(writer),
            return_exceptions=True,
        )
        for one in (writer, upstream[1]):
            one.close()

    return await asyncio.start_server(connected, "127.0.0.1", 0)


async def _stop(server: asyncio.Server) -> None:
    server.close()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Exchange:
    """One connection; requests pass at once, bytes of an answer at twice their distance from its first."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def ask(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self._first_s = None
            upstream.write(data)
            await upstream.drain()
        upstream.close()
        self._due.put_nowait((0.0, b""))

    async def hear(self, upstream: asyncio.StreamReader) -> None:
        while data := await upstream.read(65536):
            now_s = time.monotonic()
            if self._first_s is None:
                self._first_s = now_s
            self._due.put_nowait((self._first_s + _SLOWER * (now_s - self._first_s), data))
        self._due.put_nowait((0.0, b""))

    async def answer(self, writer: asyncio.StreamWriter) -> None:
        while True:
            due_s, data = await self._due.get()
            if not data:
                writer.close()
                return
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            writer.write(data)
            await writer.drain()
