"""Counts tokens as the server does, through its own tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_sparkperf.adapters.http import httpx, open_client
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.workload import request_body, token_fields

# A long prompt takes the tokenizer longer than a small page takes the server.
_TIMEOUT_S = 120.0


class ServerTokenizer:
    """The tokenizer of one server, as it takes the prompts of one load.

    Raises ServerError when the server does not tokenize, since a length that was guessed is no length.
    """

    def __init__(self, client: httpx.Client, model: str, load: Load) -> None:
        self._client = client
        self._model = model
        self._load = load

    def count(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt has, the chat template included where it is used."""
        body = request_body(self._load, prompt, model=self._model, salt=None)
        return len(self._tokenize(token_fields(body))["tokens"])

    def count_text(self, text: str) -> int:
        """Return how many tokens a text has by itself, without a template."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return len(self._tokenize(body)["tokens"])

    def texts(self, text: str) -> list[str]:
        """Return a text's tokens as the tokenizer writes them; none where the server does not tell."""
        body = {"model": self._model, "prompt": text, "return_token_strs": True}
        return [str(one) for one in self._tokenize(body).get("token_strs") or ()]

    def _tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._client.post("/tokenize", json=body)
            page = answer.json() if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError):
            page = None
        if not isinstance(page, dict) or not isinstance(page.get("tokens"), list):
            raise ServerError(
                f"{self._client.base_url} does not count tokens (POST /tokenize), which the lengths of "
                f"this load need; leave dataset and prompt_tokens out to send the shipped prompts of about "
                f"1,000 tokens"
            )
        return page


@contextmanager
def server_tokenizer(server: Server, load: Load) -> Iterator[ServerTokenizer]:
    """Open the tokenizer of a server for a load."""
    with open_client(server.url, api_key=server.api_key, timeout_s=_TIMEOUT_S) as client:
        yield ServerTokenizer(client, server.model, load)
