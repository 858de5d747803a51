"""One request's way from the engine to its client, streamed or whole, with the faults that are on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pytest_sparkperf.sim.chunks import DONE, ChunkWriter, sse, to_json
from pytest_sparkperf.sim.engine import Emission
from pytest_sparkperf.sim.faults import Faults
from pytest_sparkperf.sim.http import Exchange
from pytest_sparkperf.sim.records import EmissionRecord, Recorder

ENGINE_DEAD = {
    "error": {
        "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
}


class Output(Protocol):
    """How an answer reaches the client; each method but ``tokens`` may be called once, as the last."""

    def tokens(self, first: int, count: int, *, done: bool) -> float | None:
        """Pass tokens on; return when they were handed to the kernel, None while they are held back."""

    def finish(self, cached_tokens: int, sending: Callable[[], None]) -> None:
        """Complete the answer; ``sending`` is called right before what is left of it is handed over."""

    def fail(self) -> None:
        """Say that the engine died under this request."""

    def cut(self) -> None:
        """Close the connection without completing the answer."""


class StreamedOutput:
    """Sends a chunk per emission, unless a fault takes one away, sends one twice or holds all back."""

    def __init__(self, exchange: Exchange, writer: ChunkWriter, faults: Faults) -> None:
        self._exchange = exchange
        self._writer = writer
        self._faults = faults
        self._held: list[bytes] = []
        self._opened = False

    def tokens(self, first: int, count: int, *, done: bool) -> float | None:
        """Pass tokens on as one chunk, in a send of its own."""
        chunks = self._chunks(first, count, done=done)
        self._open()
        if not chunks:
            return None
        if self._faults.lumps:
            self._held += chunks
            return None
        at_s = time.monotonic()
        for chunk in chunks:
            self._exchange.send(chunk)
        return at_s

    def finish(self, cached_tokens: int, sending: Callable[[], None]) -> None:
        """Send what was held back, the usage chunk and ``[DONE]``."""
        sending()
        for part in (*self._held, *self._writer.closing(cached_tokens)):
            self._exchange.send(part)
        self._exchange.end()

    def fail(self) -> None:
        """Send the error object that vLLM sends when its engine dies, then ``[DONE]``."""
        self._open()
        self._exchange.send(sse(ENGINE_DEAD))
        self._exchange.send(DONE)
        self._exchange.end()

    def cut(self) -> None:
        """Close the connection in the middle of the stream."""
        self._open()
        self._exchange.cut()

    def _chunks(self, first: int, count: int, *, done: bool) -> list[bytes]:
        """Return the chunk of these tokens with what faults make of it."""

        def holds(token: int | None) -> bool:
            return token is not None and first <= token < first + count

        faults, write = self._faults, partial(self._writer.tokens, first, count)
        if holds(faults.lost_delta) and not done:
            return []
        chunks = [write(done=done, text=not holds(faults.lost_text))]
        # The one too many comes first, since nothing may follow a finish reason.
        if holds(faults.doubled_delta):
            chunks.insert(0, write(done=False))
        if holds(faults.doubled_text):
            chunks.insert(0, write(done=False, ids=False))
        if holds(faults.garbage_after):
            chunks.insert(0, _GARBAGE)
        padding = b" " * (faults.huge_lines or 0)
        return [chunk.removesuffix(_END) + padding + _END for chunk in chunks if chunk is not None]

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        self._exchange.start_stream(head_s=self._faults.slow_headers or 0.0)
        if self._faults.lumps:
            self._held += self._writer.opening()
            return
        for part in self._writer.opening():
            self._exchange.send(part)


class WholeOutput:
    """Answers once, when the last token is there."""

    def __init__(self, exchange: Exchange, writer: ChunkWriter) -> None:
        self._exchange = exchange
        self._writer = writer

    def tokens(self, first: int, count: int, *, done: bool) -> float | None:  # noqa: ARG002 - see Output
        """Hold back: the body is written from the answer itself."""
        return None

    def finish(self, cached_tokens: int, sending: Callable[[], None]) -> None:
        """Send the whole body."""
        body = self._writer.whole(cached_tokens)
        sending()
        self._exchange.respond(200, body)

    def fail(self) -> None:
        """Answer 500 with the error object."""
        self._exchange.respond(500, to_json(ENGINE_DEAD))

    def cut(self) -> None:
        """Close the connection without an answer."""
        self._exchange.cut()


_END = b"\n\n"
_GARBAGE = b"data: \xff\xfe\x00{]\n\n"
# A dying engine gives out so many tokens of the request that kills it.
_LAST_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Control:
    """What a delivery may do to the server: drop its request, say that it is over and, as faults, end more.

    ``die`` ends the process in the middle of the answer, ``break_engine`` the engine under all requests.
    """

    abort: Callable[[], None]
    over: Callable[[], None] = lambda: None
    die: Callable[[], None] | None = None
    break_engine: Callable[[], None] | None = None


class Delivery:
    """Takes one request's emissions, passes them on and keeps the record; faults cut in at their token."""

    def __init__(
        self, output: Output, record: EmissionRecord, recorder: Recorder, faults: Faults, control: Control
    ) -> None:
        self._output = output
        self._record = record
        self._recorder = recorder
        self._faults = faults
        self._control = control
        self._held_tokens = 0
        self._over = False

    def emit(self, emission: Emission) -> None:
        """Pass one emission on, unless a fault ends the answer within it."""
        stop = self._fault_token()
        end = emission.first + emission.tokens
        if stop is not None and end >= stop:
            self._send(emission.first, max(0, stop - emission.first), done=False)
            self._break()
            return
        self._record.cached_tokens = emission.cached_tokens
        self._send(emission.first, emission.tokens, done=emission.done)
        if self._control.die is not None and emission.first > 0:
            self._control.die()
        if self._control.break_engine is not None and (end >= _LAST_TOKENS or emission.done):
            self._control.break_engine()
        elif emission.done:
            self._output.finish(emission.cached_tokens, self._complete)

    def fail(self) -> None:
        """The engine is dead: say so and drop the request."""
        self.abandoned()
        self._output.fail()

    def abandoned(self) -> None:
        """The client has gone: drop the request."""
        self._end("aborted")
        self._control.abort()

    def _complete(self) -> None:
        """Close the record before the client can see the end, so that it can read the record then."""
        self._note(time.monotonic(), 0)
        self._end("finished")

    def _end(self, outcome: str) -> None:
        if not self._over:
            self._over = True
            self._record.outcome = outcome
            self._recorder.ended(self._record)
            self._control.over()

    def _send(self, first: int, count: int, *, done: bool) -> None:
        if count:
            self._note(self._output.tokens(first, count, done=done), count)

    def _note(self, at_s: float | None, tokens: int) -> None:
        """Note tokens as sent, together with those held back before them; or hold them back."""
        self._held_tokens += tokens
        if at_s is not None and self._held_tokens:
            self._record.add(at_s, self._held_tokens)
            self._held_tokens = 0

    def _fault_token(self) -> int | None:
        faults = self._faults
        return faults.error_after or faults.truncate_after or faults.hang_after

    def _break(self) -> None:
        self.abandoned()
        if self._faults.error_after:
            self._output.fail()
        elif self._faults.truncate_after:
            self._output.cut()
