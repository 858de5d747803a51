"""An event loop in a thread of its own, so that measuring works inside any test, an asynchronous one too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines one after the other for a caller that has no loop, or another one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparkperf-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return what it returns.

        An interrupt of the caller (Ctrl-C, a timeout raised by a signal) cancels the coroutine and waits
        until it has let go of its connections, so that no request of ours is left on the server.
        """
        let_go = threading.Event()

        async def guarded() -> T:
            try:
                return await coroutine
            finally:
                let_go.set()

        future = asyncio.run_coroutine_threadsafe(guarded(), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                let_go.wait(timeout=5)
            raise

    def close(self) -> None:
        """Stop the loop and end the thread; may be called twice."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
