"""A vLLM server in memory, as far as an equivalence run talks to one, with faults that can be switched on."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_sparkperf.adapters.http import httpx, open_async_client
from pytest_sparkperf.experiment.answers import OpenServer

ROOT = "http://127.0.0.1:1"
# (token id, text, log-probabilities of candidates)
Token = tuple[int, str, dict[str, float]]


@dataclass
class Reply:
    """What the server says to one request: tokens, or a tool call's deltas."""

    tokens: Sequence[Token] = ()
    call: tuple[str, Sequence[str]] | None = None
    status: int = 200
    finish: str = "stop"


def words(text: str) -> list[Token]:
    """Return one token per word, each sure of itself."""
    return [(zlib.crc32(word.encode()), f"{word} ", {f"{word} ": -0.01, "?": -6.0}) for word in text.split()]


@dataclass
class MemoryVllm:
    """Answers every request by ``say(body, number)``; ``number`` counts the requests with this prompt.

    ``usage`` is what it adds to the true token count; ``ids`` whether it sends token ids; ``caching`` whether
    the prefix cache is on; ``dies_at`` the number of the request that ends it.
    """

    say: Callable[[dict[str, Any], int], Reply]
    ids: bool = True
    logprobs: bool = True
    caching: bool = True
    counts_hits: bool = True
    dies_at: int | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    tokenized: list[str] = field(default_factory=list)
    opened: int = 0
    _hits: int = 0
    _salts: set[str] = field(default_factory=set)

    @property
    def dead(self) -> bool:
        """Whether it has died."""
        return self.dies_at is not None and len(self.bodies) >= self.dies_at

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenServer]:
        """Open it as a run does."""
        self.opened += 1
        transport = httpx.MockTransport(self._handle)
        async with open_async_client(ROOT, transport=transport) as client:
            yield OpenServer(client, "m", 0)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        if self.dead:
            raise httpx.ConnectError("refused")
        path = request.url.path
        if path == "/health":
            return httpx.Response(200)
        if path == "/metrics":
            return httpx.Response(200, text=self._metrics())
        body = json.loads(request.content)
        if path == "/tokenize":
            self.tokenized.append(body["prompt"])
            return httpx.Response(200, json={"tokens": [one for one, *_ in words(body["prompt"])]})
        return self._generate(body)

    def _generate(self, body: dict[str, Any]) -> httpx.Response:
        if "logprobs" in body and not self.logprobs:
            return httpx.Response(400, json={"error": {"message": "no logprobs", "code": 400}})
        prompt = json.dumps(body.get("messages") or body.get("prompt"))
        number = sum(json.dumps(one.get("messages") or one.get("prompt")) == prompt for one in self.bodies)
        self.bodies.append(body)
        if self.dead:
            return _stream(b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n')
        salt = body["cache_salt"]
        self._hits += 16 if self.caching and salt in self._salts else 0
        self._salts.add(salt)
        reply = self.say(body, number)
        if reply.status != 200:
            return httpx.Response(reply.status, json={"error": {"message": "refused", "code": reply.status}})
        return _stream(b"".join(self._events(body, reply)))

    def _events(self, body: dict[str, Any], reply: Reply) -> list[bytes]:
        events = [self._token(body, one) for one in reply.tokens]
        if reply.call is not None:
            name, parts = reply.call
            deltas: list[dict[str, Any]] = [{"index": 0, "id": "x", "function": {"name": name}}]
            deltas += [{"index": 0, "function": {"arguments": part}} for part in parts]
            events += [{"index": 0, "delta": {"tool_calls": [delta]}} for delta in deltas]
        events[-1] |= {"finish_reason": reply.finish}
        chunks: list[dict[str, Any]] = [{"choices": [event]} for event in events]
        count = len(reply.tokens) + (0 if reply.call is None else 1)
        usage = {"prompt_tokens": 9, "completion_tokens": count}
        chunks.append({"choices": [], "usage": usage})
        return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]

    def _token(self, body: dict[str, Any], token: Token) -> dict[str, Any]:
        number, text, candidates = token
        event: dict[str, Any] = {"index": 0, "delta": {"content": text}}
        if self.ids:
            event["token_ids"] = [number]
        if "logprobs" in body:
            tops = [{"token": one, "logprob": value} for one, value in candidates.items()]
            entry = {"token": text, "logprob": candidates.get(text), "top_logprobs": tops}
            event["logprobs"] = {"content": [entry]}
        return event

    def _metrics(self) -> str:
        lines = [
            f'vllm:cache_config_info{{block_size="16",enable_prefix_caching="{self.caching}"}} 1.0',
            f"vllm:generation_tokens_total {len(self.bodies)}",
            "vllm:spec_decode_num_drafts_total 10",
            f"vllm:spec_decode_num_draft_tokens_total {10 + 3 * len(self.bodies)}",
            f"vllm:spec_decode_num_accepted_tokens_total {10 + 2 * len(self.bodies)}",
        ]
        if self.counts_hits:
            lines.append(f"vllm:prefix_cache_hits_total {self._hits}")
        return "\n".join(lines) + "\n"


def _stream(data: bytes) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(data))
