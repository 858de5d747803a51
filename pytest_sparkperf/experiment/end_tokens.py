"""Asks a server's tokenizer for the tokens with which its model ends a turn or a text."""

from __future__ import annotations

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.core.flags import END_TOKENS


async def end_token_ids(client: httpx.AsyncClient, model: str) -> frozenset[int] | None:
    """Return the ids of the end tokens that the tokenizer knows as one token; None where none can be had.

    A text that is no token of this model is split into several, which tells it apart.
    """
    found: set[int] = set()
    for text in END_TOKENS:
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        try:
            answer = await client.post("/tokenize", json=body)
            ids = answer.json()["tokens"] if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(ids, list):
            return None
        found.update(ids if len(ids) == 1 else ())
    return frozenset(found) or None
