"""End tokens by the server's tokenizer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from pytest_sparkperf.adapters.http import httpx, open_async_client
from pytest_sparkperf.core.flags import END_TOKENS
from pytest_sparkperf.experiment.end_tokens import end_token_ids


def ask(handle: Callable[[httpx.Request], httpx.Response]) -> frozenset[int] | None:
    async def go() -> frozenset[int] | None:
        async with open_async_client("http://127.0.0.1:1", transport=httpx.MockTransport(handle)) as client:
            return await end_token_ids(client, "m")

    return asyncio.run(go())


def test_texts_that_are_one_token_are_end_tokens() -> None:
    known = {"<|im_end|>": [7], "<|endoftext|>": [5]}
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert (body["model"], body["add_special_tokens"]) == ("m", False)
        asked.append(body["prompt"])
        return httpx.Response(200, json={"tokens": known.get(body["prompt"], [1, 2, 3])})

    assert ask(handle) == frozenset({5, 7})
    assert asked == list(END_TOKENS)


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(404, json={"detail": "Not Found"}),
        httpx.Response(200, json={"count": 3}),
        httpx.Response(200, json={"tokens": None}),
        httpx.Response(200, text="no json"),
        httpx.Response(200, json={"tokens": [1, 2]}),
    ],
)
def test_a_server_that_does_not_tell_leaves_them_unknown(response: httpx.Response) -> None:
    assert ask(lambda _: response) is None


def test_a_server_that_is_gone_leaves_them_unknown() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    assert ask(refuse) is None
