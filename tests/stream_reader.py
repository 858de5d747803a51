"""A tiny streaming client on the standard library, which shares no code with what it checks."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 60.0
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body decoded."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed answer: each event with the second (monotonic) at which its line was read."""

    sent_s: float
    events: tuple[tuple[float, str], ...]
    complete: bool

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """Every JSON payload."""
        return [json.loads(text) for _, text in self.events if text != "[DONE]"]

    @property
    def text(self) -> str:
        """Reasoning, content or text of all chunks."""
        return "".join(_text(chunk) for chunk in self.chunks)

    @property
    def token_times_s(self) -> list[float]:
        """When each chunk with text came."""
        return [at_s for at_s, text in self.events if text != "[DONE]" and _text(json.loads(text))]

    @property
    def usage(self) -> dict[str, Any]:
        """The usage of the last chunk that has one."""
        found: dict[str, Any] = [chunk["usage"] for chunk in self.chunks if chunk.get("usage")][-1]
        return found

    @property
    def decode_tok_s(self) -> float:
        """Tokens after the first chunk by the time from the first to the last (continuous usage needed)."""
        counted = [(at_s, json.loads(text)) for at_s, text in self.events if text != "[DONE]"]
        tokens = [(at_s, chunk["usage"]["completion_tokens"]) for at_s, chunk in counted if _text(chunk)]
        return float((tokens[-1][1] - tokens[0][1]) / (tokens[-1][0] - tokens[0][0]))


def chat_body(prompt: str = "Tell me about integers.", **fields: Any) -> dict[str, Any]:
    """Return a streamed greedy chat request with usage, 24 tokens, thinking off, unless told otherwise."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 24,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    return body | fields


def raw_chat(**fields: Any) -> bytes:
    """Return the bytes of a chat request, for a plain socket."""
    body = json.dumps(chat_body(**fields)).encode()
    return f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def call(
    url: str,
    path: str,
    body: object = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Send one request (POST where there is a body) and return the whole answer."""
    payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    with _connection(url) as connection:
        connection.request(
            method or ("GET" if body is None else "POST"),
            path,
            payload,
            {"connection": "close", **(headers or {})},
        )
        answer = connection.getresponse()
        return Reply(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        )


def stream(url: str, body: Mapping[str, Any], path: str = CHAT) -> Stream:
    """Send one request and read its events until the answer ends or the connection breaks."""
    with _connection(url) as connection:
        sent_s = time.monotonic()
        connection.request("POST", path, json.dumps(body).encode())
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        events = []
        try:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    events.append((time.monotonic(), line[6:].decode().strip()))
        except (http.client.IncompleteRead, ConnectionError):
            return Stream(sent_s, tuple(events), complete=False)
        # readline returns an empty line also where a chunked body was cut; only the last event tells.
        return Stream(sent_s, tuple(events), complete=bool(events) and events[-1][1] == "[DONE]")


def stream_many(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[Stream]:
    """Send several requests at once."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: stream(url, body), bodies))


def metric(url: str, name: str) -> float:
    """Return the sum of a metric's samples over their labels."""
    lines = call(url, "/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


def emissions(url: str) -> list[dict[str, Any]]:
    """Return what the simulator recorded of the requests that have ended."""
    return [json.loads(line) for line in call(url, "/sparkperf_sim/emissions").body.splitlines()]


@contextmanager
def _connection(url: str) -> Iterator[http.client.HTTPConnection]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        yield connection
    finally:
        connection.close()


def _text(chunk: Mapping[str, Any]) -> str:
    if not chunk.get("choices"):
        return ""
    choice = chunk["choices"][0]
    delta = choice.get("delta") or {}
    return "".join(
        part for part in (choice.get("text"), delta.get("reasoning"), delta.get("content")) if part
    )
