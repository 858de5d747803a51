"""Counts tokens as the server does, through its own tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_sparkperf.adapters.http import httpx, open_client
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.load import Load


@contextmanager
def token_counter(server: Server, load: Load) -> Iterator[Callable[[str], int]]:
    """Give a function that counts a prompt's tokens, the chat template included where it is used.

    Raises ServerError when the server does not tokenize, since a length that was guessed is no length.
    """
    with open_client(server.url, api_key=server.api_key) as client:
        yield lambda text: _count(client, _body(server, load, text))


def _body(server: Server, load: Load, text: str) -> dict[str, Any]:
    if load.endpoint == "completions":
        return {"model": server.model, "prompt": text}
    return {
        "model": server.model,
        "messages": [{"role": "user", "content": text}],
        "chat_template_kwargs": {"enable_thinking": load.thinking},
    }


def _count(client: httpx.Client, body: dict[str, Any]) -> int:
    try:
        answer = client.post("/tokenize", json=body)
        count = answer.json()["count"] if answer.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        count = None
    if not isinstance(count, int):
        raise ServerError(
            f"{client.base_url} does not count tokens (POST /tokenize), so prompts cannot be cut to "
            f"prompt_tokens; leave prompt_tokens out to send the shipped prompts of about 1,000 tokens"
        )
    return count
