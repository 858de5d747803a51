"""Reads one streamed answer: bytes and their times in, one RequestResult out.

While the stream runs, events are only framed and kept with the time of the read that completed them; JSON is
parsed in :meth:`StreamReader.finish`, so that reading one stream does not delay the stamps of the others.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from pytest_sparkperf.core.chunks import Chunk, Usage, parse_chunk
from pytest_sparkperf.core.load import Endpoint
from pytest_sparkperf.core.result import Drafted, RequestResult
from pytest_sparkperf.core.sse import SseDecoder
from pytest_sparkperf.core.toolcalls import ToolCallAssembler
from pytest_sparkperf.core.validity import (
    ABORTED,
    BAD_JSON,
    ERROR_OBJECT,
    GARBAGE,
    SEVERAL_CHOICES,
    TRUNCATED,
    Expectation,
    Fault,
    find_fault,
    is_length_limited,
)

_DONE = b"[DONE]"
_EXCERPT = 80
_NOTHING_EXPECTED = Expectation()
# Finish reasons with which vLLM reports that it, not the model, ended the answer.
_GIVEN_UP = frozenset({"abort", "error"})


class StreamReader:
    """Collects the events of one answer; ``ended`` once [DONE] or an error object has come."""

    __slots__ = (
        "_decoder",
        "_done",
        "_endpoint",
        "_events",
        "_expectation",
        "_prompt_name",
        "ended",
        "last_read_s",
    )

    def __init__(
        self, endpoint: Endpoint, *, prompt_name: str = "", expectation: Expectation = _NOTHING_EXPECTED
    ) -> None:
        self._endpoint = endpoint
        self._prompt_name = prompt_name
        self._expectation = expectation
        self._decoder = SseDecoder()
        self._events: list[tuple[float, bytes]] = []
        self.last_read_s = 0.0
        self._done = False
        self.ended = False

    @property
    def events_seen(self) -> int:
        """Events so far, comments and keep-alives not among them."""
        return len(self._events)

    @property
    def payloads(self) -> tuple[bytes, ...]:
        """The data of the events so far, for readers of fields that no result has."""
        return tuple(payload for _, payload in self._events)

    @property
    def last_event_s(self) -> float | None:
        """Time of the last event so far."""
        return self._events[-1][0] if self._events else None

    def feed(self, data: bytes, at_s: float) -> None:
        """Take the bytes of one read and the time it returned; what follows [DONE] is ignored."""
        self.last_read_s = at_s
        for payload in self._decoder.feed(data):
            if self._done:
                return
            if payload == _DONE:
                self._done = self.ended = True
            else:
                self._events.append((at_s, payload))
                if payload.startswith(b'{"error"'):
                    self.ended |= _is_error(payload, self._endpoint)

    def finish(
        self, *, written_s: float | None, status: int | None = None, fault: Fault | None = None
    ) -> RequestResult:
        """Parse what came and judge it, after the last read.

        ``written_s`` is when the request was written, by the clock of :meth:`feed`. ``fault`` is what the
        transport or the HTTP status had to say; it does not matter where the answer was complete before.
        """
        transcript = _Transcript()
        for at_s, payload in self._events:
            transcript.add_payload(payload, self._endpoint, at_s)
        self._add_tail(transcript)
        answer = replace(
            transcript.as_result(),
            prompt_name=self._prompt_name,
            written_s=written_s,
            status=status,
            done_seen=self._done,
        )
        answer = replace(answer, length_limited=is_length_limited(answer, self._expectation.max_tokens))
        found = transcript.fault or self._find_incomplete(answer, fault) or transcript.late_fault
        found = found or find_fault(answer, self._expectation)
        if found is None:
            return answer
        return replace(answer, valid=False, reason=found.reason, error=found.text)

    def _add_tail(self, transcript: _Transcript) -> None:
        """Take an event whose blank line never came, unless it was cut itself."""
        for payload in self._decoder.close():
            if payload == _DONE:
                self._done = True
            elif not self._done and _is_whole(payload, self._endpoint):
                transcript.add_payload(payload, self._endpoint, self.last_read_s)

    def _find_incomplete(self, answer: RequestResult, fault: Fault | None) -> Fault | None:
        complete = answer.finish_reason is not None and answer.output_tokens is not None
        if self._done or complete:
            return None
        if fault is not None:
            return fault
        if not self._events and self._decoder.foreign_lines:
            return Fault(GARBAGE, f"the answer began with {self._decoder.first_foreign[:_EXCERPT]!r}")
        return Fault(TRUNCATED, f"the stream ended after {answer.token_events} token events")


class _Transcript:
    """What the events of one answer add up to."""

    def __init__(self) -> None:
        self.fault: Fault | None = None  # decides before anything else
        self.late_fault: Fault | None = None  # decides once the answer is known to be complete
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls = ToolCallAssembler()
        self._times_s: list[float] = []
        self._usage: Usage | None = None
        self._token_ids: list[int] | None = []  # None once an event with text came without its ids
        self._first_event_tokens: int | None = None
        self._finish_reason: str | None = None
        self._drafted: Drafted | None = None

    def add_payload(self, payload: bytes, endpoint: Endpoint, at_s: float) -> None:
        if not payload.strip():
            return
        try:
            chunk = parse_chunk(payload, endpoint)
        except ValueError:
            self.fault = self.fault or Fault(BAD_JSON, f"an event was {payload[:_EXCERPT]!r}")
            return
        if chunk.error is not None:
            self.fault = self.fault or Fault(ERROR_OBJECT, chunk.error)
            return
        self._add(chunk, at_s)

    def _add(self, chunk: Chunk, at_s: float) -> None:
        if any(chunk.choice_indices):
            self.late_fault = self.late_fault or Fault(SEVERAL_CHOICES)
        self._content.append(chunk.content)
        self._reasoning.append(chunk.reasoning)
        self._calls.add(chunk.tool_calls)
        self._usage = chunk.usage or self._usage
        self._drafted = chunk.drafted or self._drafted
        self._finish_reason = chunk.finish_reason or self._finish_reason
        if chunk.finish_reason in _GIVEN_UP:
            self.late_fault = self.late_fault or Fault(ABORTED, f"finish_reason was {chunk.finish_reason!r}")
        if chunk.token_ids is not None and self._token_ids is not None:
            self._token_ids += chunk.token_ids
        elif chunk.is_token_event:
            self._token_ids = None
        if chunk.is_token_event:
            self._times_s.append(at_s)
            if len(self._times_s) == 1:
                self._first_event_tokens = self._tokens_so_far(chunk)

    def _tokens_so_far(self, chunk: Chunk) -> int | None:
        if chunk.usage is not None and chunk.usage.output_tokens:
            return chunk.usage.output_tokens
        return len(self._token_ids) or None if self._token_ids is not None else None

    def as_result(self) -> RequestResult:
        times_s = self._times_s
        usage = self._usage
        return RequestResult(
            valid=True,
            first_event_s=times_s[0] if times_s else None,
            last_event_s=times_s[-1] if times_s else None,
            first_event_tokens=self._first_event_tokens,
            token_events=len(times_s),
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            # Events of one read came at one instant: between them there is no gap.
            itl_ms=tuple((late - early) * 1000 for early, late in pairwise(dict.fromkeys(times_s))),
            token_ids=tuple(self._token_ids) if self._token_ids else None,
            text="".join(self._content),
            reasoning="".join(self._reasoning),
            tool_calls=self._calls.assembled(),
            finish_reason=self._finish_reason,
            drafted=self._drafted,
        )


def _is_whole(payload: bytes, endpoint: Endpoint) -> bool:
    try:
        parse_chunk(payload, endpoint)
    except ValueError:
        return False
    return True


def _is_error(payload: bytes, endpoint: Endpoint) -> bool:
    return _is_whole(payload, endpoint) and parse_chunk(payload, endpoint).error is not None
