from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from recorded_streams import STREAMS, Case, load_cases

from pytest_sparkperf.adapters.client import (
    STAMP_EXTENSION,
    GenerationRequest,
    Timeouts,
    record_request,
    stream_request,
)
from pytest_sparkperf.adapters.http import httpx, open_async_client
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.stream import StreamReader

CASES = load_cases()
# What the watchdog says of its limits.
SILENCE = "(silence_timeout_s of the target)"
BEGINNING = "(silence_timeout_s of the target and 1 s per 1,000 prompt tokens)"
REQUEST = GenerationRequest("chat", {"model": "m", "messages": [], "max_tokens": 64})
SOUND = (
    (0.5, b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'),
    (1.5, b'data: {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]}\n\n'),
    (
        1.6,
        b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\ndata: [DONE]\n\n',
    ),
)


class Clock:
    """Stands still until a write moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Body(httpx.AsyncByteStream):
    """Hands out writes and sets the clock to the time of each; then raises or hangs if told to."""

    def __init__(
        self, writes: Iterable[tuple[float, bytes]], clock: Clock, end: Callable[[], Awaitable[object]] | None
    ) -> None:
        self._writes = writes
        self._clock = clock
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at_s, data in self._writes:
            self._clock.now_s = at_s
            yield data
        if self._end is not None:
            await self._end()


class MemoryTransport(httpx.AsyncBaseTransport):
    """Answers every request with the same response and keeps the request."""

    def __init__(
        self,
        writes: Iterable[tuple[float, bytes]] = (),
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
        end: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.clock = Clock()
        self.extensions: dict[str, Any] = {}
        self.written_s: float | None = None
        self.seen: httpx.Request | None = None
        self._answer = status, headers, Body(writes, self.clock, end)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen = request
        if self.written_s is not None:
            self.clock.now_s = self.written_s
            await request.extensions["trace"]("http11.send_request_body.started", {})
        status, headers, body = self._answer
        return httpx.Response(status, headers=headers, stream=body, extensions=self.extensions)

    @property
    def body(self) -> dict[str, Any]:
        assert self.seen is not None
        found: dict[str, Any] = json.loads(self.seen.content)
        return found


def send(
    transport: MemoryTransport,
    request: GenerationRequest = REQUEST,
    timeouts: Timeouts = Timeouts(),  # noqa: B008
) -> RequestResult:
    async def run() -> RequestResult:
        async with open_async_client("http://server", transport=transport) as client:
            return await stream_request(client, request, timeouts=timeouts, clock=transport.clock)

    return asyncio.run(run())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_streams_that_misled_other_clients_arrive_as_the_reader_has_them(case: Case) -> None:
    reader = StreamReader("chat", prompt_name=case.name)
    for at_s, data in case.writes:
        reader.feed(data, at_s)
    expected = reader.finish(written_s=0.0, status=200)
    request = GenerationRequest("chat", {"messages": []}, prompt_name=case.name)
    assert send(MemoryTransport(case.writes, headers=case.headers), request) == expected


def test_the_request_asks_for_usage_and_token_ids() -> None:
    transport = MemoryTransport(SOUND)
    assert send(transport).valid
    assert transport.seen is not None
    assert transport.seen.url.path == "/v1/chat/completions"
    assert transport.seen.headers["content-type"] == "application/json"
    assert transport.body == {
        "model": "m",
        "messages": [],
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    }


def test_a_body_may_decide_otherwise_but_always_streams() -> None:
    body = {"stream": False, "stream_options": {"continuous_usage_stats": False}, "return_token_ids": False}
    transport = MemoryTransport(SOUND)
    send(transport, GenerationRequest("completions", {"prompt": "é", **body}))
    assert transport.seen is not None
    assert transport.seen.url.path == "/v1/completions"
    assert transport.body == {
        "prompt": "é",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": False},
        "return_token_ids": False,
    }


def test_what_was_asked_for_is_held_against_the_answer() -> None:
    request = replace(REQUEST, expected_tokens=64, prompt_name="code")
    answer = send(MemoryTransport(SOUND), request)
    assert (answer.prompt_name, answer.reason, answer.error) == ("code", "stopped_early", "2 of 64 tokens")
    assert answer.length_limited is False
    limited = GenerationRequest("chat", {"max_completion_tokens": 2})
    assert send(MemoryTransport(SOUND), limited).length_limited is True


def test_time_runs_from_the_moment_the_body_is_written() -> None:
    transport = MemoryTransport(SOUND)
    transport.written_s = 0.25
    answer = send(transport)
    assert (answer.written_s, answer.ttft_ms, answer.e2el_ms) == (0.25, 250.0, 1250.0)


def test_a_transport_that_does_not_tell_when_it_wrote_has_the_start_taken() -> None:
    assert send(MemoryTransport(SOUND)).ttft_ms == 500.0


def test_a_request_that_waits_until_it_is_due_is_timed_from_then() -> None:
    transport = MemoryTransport((100.0 + at_s, data) for at_s, data in SOUND)

    async def due() -> None:
        assert transport.seen is None
        transport.clock.now_s = 100.0

    async def run() -> RequestResult:
        async with open_async_client("http://server", transport=transport) as client:
            recording = await record_request(client, REQUEST, clock=transport.clock, when=due)
        return recording.result()

    answer = asyncio.run(run())
    assert (answer.valid, answer.written_s, answer.ttft_ms) == (True, 100.0, 500.0)


def test_a_transport_that_stamps_arrivals_is_believed() -> None:
    transport = MemoryTransport(SOUND)
    stamps = iter((0.1, 0.2, 0.3))
    transport.extensions[STAMP_EXTENSION] = lambda: next(stamps)
    answer = send(transport)
    assert (answer.first_event_s, answer.last_event_s) == (0.1, 0.2)


def test_a_recording_is_parsed_when_the_caller_wants_it() -> None:
    transport = MemoryTransport(SOUND)

    async def run() -> RequestResult:
        async with open_async_client("http://server", transport=transport) as client:
            recording = await record_request(client, REQUEST, clock=transport.clock)
        return recording.result()

    assert asyncio.run(run()).text == "ab"


@pytest.mark.parametrize(
    ("status", "body", "reason", "error"),
    [
        (503, b"", "http_error", "HTTP 503 without a body"),
        (500, b'{"error": {"message": "dead", "code": 500}}', "http_error", "dead (code 500)"),
        (429, b"slow down", "http_error", "slow down"),
        (404, b'{"detail":"Not Found"}', "rejected", "Not Found"),
        (307, b"", "rejected", "HTTP 307 without a body"),
        (204, b"", "rejected", "HTTP 204 without a body"),
    ],
)
def test_http_errors_carry_the_servers_words(status: int, body: bytes, reason: str, error: str) -> None:
    answer = send(MemoryTransport([(1.0, body)] if body else [], status=status))
    assert (answer.valid, answer.status, answer.reason, answer.error) == (False, status, reason, error)
    assert answer.ttft_ms is None


def test_refusals_of_a_real_server_are_told_in_its_words() -> None:
    body = (STREAMS / "vllm-0.24-h200" / "k3.err_max_tokens_too_large.raw").read_bytes()
    answer = send(MemoryTransport([(1.0, body)], status=400))
    assert answer.reason == "rejected"
    assert answer.error == f"{json.loads(body)['error']['message']} (code 400)"


def raising(error: Exception) -> Callable[[], Awaitable[object]]:
    async def end() -> None:
        raise error

    return end


@pytest.mark.parametrize(
    ("raised", "reason", "error"),
    [
        (httpx.ConnectError("refused"), "connect_failed", "ConnectError: refused"),
        (httpx.ConnectTimeout(""), "connect_failed", "ConnectTimeout"),
        (httpx.ReadTimeout(""), "timeout", "ReadTimeout"),
        (httpx.ReadError(""), "connection_lost", "ReadError"),
        (httpx.WriteError("pipe"), "connection_lost", "WriteError: pipe"),
        (
            httpx.RemoteProtocolError("Server disconnected without sending a response."),
            "connection_lost",
            "RemoteProtocolError: Server disconnected without sending a response.",
        ),
        (
            httpx.RemoteProtocolError("peer closed connection without sending complete message body"),
            "truncated",
            "RemoteProtocolError: peer closed connection without sending complete message body",
        ),
        (
            httpx.RemoteProtocolError("illegal chunk header"),
            "garbage",
            "RemoteProtocolError: illegal chunk header",
        ),
        (httpx.DecodingError("not gzip"), "garbage", "DecodingError: not gzip"),
    ],
)
def test_faults_on_the_way_have_a_reason_each(raised: Exception, reason: str, error: str) -> None:
    answer = send(MemoryTransport(SOUND[:1], end=raising(raised)))
    assert (answer.valid, answer.reason, answer.error) == (False, reason, error)
    assert answer.text == "a"


def test_a_fault_after_a_complete_answer_is_none() -> None:
    assert send(MemoryTransport(SOUND, end=raising(httpx.ReadError("")))).valid


@pytest.mark.parametrize("error", [TypeError("ours"), httpx.LocalProtocolError("ours"), TimeoutError("ours")])
def test_mistakes_of_our_own_are_raised(error: Exception) -> None:
    with pytest.raises(type(error), match=r"^ours$"):
        send(MemoryTransport(SOUND[:1], end=raising(error)))


def test_a_body_that_is_no_json_is_raised() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        send(MemoryTransport(), GenerationRequest("chat", {"messages": {1}}))
    with pytest.raises(ValueError, match="Out of range float values"):
        send(MemoryTransport(), GenerationRequest("chat", {"temperature": float("nan")}))


def test_cancelling_passes() -> None:
    async def run() -> None:
        started = asyncio.Event()

        async def hang() -> None:
            started.set()
            await asyncio.Event().wait()

        transport = MemoryTransport(SOUND[:1], end=hang)
        async with open_async_client("http://server", transport=transport) as client:
            task = asyncio.create_task(stream_request(client, REQUEST))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


async def forever() -> None:
    await asyncio.Event().wait()


def wait_for(
    writes: Iterable[tuple[float, bytes]], request: GenerationRequest, timeouts: Timeouts
) -> RequestResult:
    """Send a request to a server that hangs after these writes, by the real clock."""

    async def run() -> RequestResult:
        transport = MemoryTransport(writes, end=forever)
        async with open_async_client("http://server", transport=transport) as client:
            return await stream_request(client, request, timeouts=timeouts)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("writes", "timeouts", "error"),
    [
        (
            (),
            Timeouts(first_event_s=0.01),
            f"the answer did not begin within 0.1 s {BEGINNING}; events seen: 0",
        ),
        (
            SOUND[:1],
            Timeouts(first_event_s=0.01, gap_s=0.0),
            f"the answer did not begin within 0.1 s {BEGINNING}; events seen: 1",
        ),
        (
            SOUND[:2],
            Timeouts(gap_s=0.1),
            f"no event for 0.1 s after 2 events {SILENCE}",
        ),
        (SOUND[:2], Timeouts(total_s=0.1), "not finished within 0.1 s, the longest of any request"),
    ],
)
def test_a_server_that_hangs_is_waited_for_no_longer_than_stated(
    writes: Iterable[tuple[float, bytes]], timeouts: Timeouts, error: str
) -> None:
    # 120 prompt tokens are worth 0.12 s of prefill.
    answer = wait_for(writes, replace(REQUEST, prompt_tokens=120), timeouts)
    assert (answer.valid, answer.reason, answer.error) == (False, "timeout", error)


def test_a_prompt_of_unknown_length_is_allowed_time_by_its_bytes() -> None:
    request = GenerationRequest("completions", {"prompt": "x" * 900})
    answer = wait_for((), request, Timeouts(first_event_s=0.0))
    assert answer.error == f"the answer did not begin within 0.3 s {BEGINNING}; events seen: 0"


def test_a_body_that_does_not_end_after_done_is_not_waited_for() -> None:
    answer = wait_for(SOUND, REQUEST, Timeouts())
    assert (answer.valid, answer.text) == (True, "ab")
