"""Ties the engine to the loop's clock: steps end at their own deadlines and are given out then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from pytest_sparkperf.sim.engine import Emission, Engine, EngineRequest

Sink = Callable[[Emission], None]
# The event loop's own timer may be a millisecond late; the rest of a wait is slept in the thread, which is
# exact to some tens of microseconds and burns no processor that a client on the same machine needs.
_BLOCKING_WAIT_S = 0.0015


class EngineRunner:
    """Runs an engine for ever and hands each request's tokens to its sink.

    A step starts when the one before it ended, not when the process woke up, so that lateness never adds up.
    One that is not ``paced`` never waits: a step ends as soon as it can, whatever it costs. Its seconds are
    those of the simulated machine, of which ``time_scale`` pass in one of ``clock``.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        on_compile: Callable[[str], None],
        paced: bool = True,
        time_scale: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self._on_compile = on_compile
        self._paced = paced
        self._time_scale = time_scale
        self._real_clock = clock
        self._sinks: dict[str, Sink] = {}
        self._work = asyncio.Event()

    def submit(self, request: EngineRequest, sink: Sink) -> None:
        """Queue a request; ``sink`` is called at each of its emissions."""
        self._sinks[request.request_id] = sink
        self.engine.submit(request, self._clock())
        self._work.set()

    def abort(self, request_id: str) -> None:
        """Drop a request and free its place."""
        if self._sinks.pop(request_id, None) is not None:
            self.engine.abort(request_id)

    async def run(self) -> None:
        """Serve until cancelled."""
        at_s = self._clock()
        while True:
            step = self.engine.begin(at_s)
            if step is None:
                self._work.clear()
                await self._work.wait()
                at_s = self._clock()
                continue
            for kernel in step.compiled:
                self._on_compile(kernel)
            if self._paced:
                await self._wait_until(step.end_s)
            else:
                await asyncio.sleep(0)
                step = replace(step, end_s=self._clock())
            for emission in self.engine.complete(step):
                self._give_out(emission)
            at_s = step.end_s

    def _give_out(self, emission: Emission) -> None:
        sink = self._sinks.pop if emission.done else self._sinks.get
        found = sink(emission.request_id, None)
        if found is not None:
            found(emission)

    async def _wait_until(self, deadline_s: float) -> None:
        # Also without anything to wait for: requests and disconnects must be read between steps.
        await asyncio.sleep(max(0.0, self._left_s(deadline_s) - _BLOCKING_WAIT_S))
        rest_s = self._left_s(deadline_s)
        if rest_s > 0:
            time.sleep(rest_s)  # noqa: ASYNC251 - see _BLOCKING_WAIT_S

    def _clock(self) -> float:
        return self._real_clock() * self._time_scale

    def _left_s(self, deadline_s: float) -> float:
        return (deadline_s - self._clock()) / self._time_scale
