"""Small requests to a server's root: what came back, or how nothing did; bounded in time and size."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_sparkperf.adapters.http import PAGE_TIMEOUT_S, httpx

PageState = Literal["ok", "refused", "timeout", "not_http", "denied", "failed"]

_LARGEST_BYTES = 16 * 1024 * 1024
_PROBE_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Page:
    """One answer; ``detail`` says in words what is wrong with it, ``status`` is None without an answer."""

    state: PageState
    status: int | None = None
    text: str = ""
    detail: str = ""

    def json(self) -> Any:
        """Return the body as JSON; None when the page failed or holds none."""
        try:
            return json.loads(self.text) if self.state == "ok" else None
        except ValueError:
            return None

    def get(self, *keys: str) -> Any:
        """Return a value of nested JSON objects; None where a key is missing."""
        value = self.json()
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value


def fetch(
    client: httpx.Client,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    timeout_s: float = PAGE_TIMEOUT_S,
) -> Page:
    """GET a path, or POST a JSON body to it; the whole answer must come within the timeout."""
    try:
        return _read(client, path, body, timeout_s)
    except httpx.TimeoutException:
        return Page("timeout", detail=f"gave no answer within {timeout_s:.3g} s")
    except httpx.RemoteProtocolError as error:
        return Page("not_http", detail=str(error).rstrip("."))
    except httpx.TransportError as error:
        return Page("refused", detail=str(error) or type(error).__name__)


def _read(client: httpx.Client, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Page:
    deadline = time.monotonic() + timeout_s
    content = bytearray()
    method = "GET" if body is None else "POST"
    with client.stream(method, path, json=body, timeout=timeout_s) as response:
        for chunk in response.iter_bytes():
            content += chunk
            if time.monotonic() > deadline:
                return Page("timeout", response.status_code, detail=f"did not end within {timeout_s:.3g} s")
            if len(content) > _LARGEST_BYTES:
                return Page("failed", response.status_code, detail=f"sent more than {_LARGEST_BYTES} bytes")
    text = content.decode("utf-8", "replace")
    if response.status_code in (401, 403):
        return Page("denied", response.status_code, text, f"answered {response.status_code}")
    if response.status_code != 200:
        return Page("failed", response.status_code, text, f"answered {response.status_code}{_words(text)}")
    return Page("ok", 200, text)


def _words(text: str) -> str:
    """Return the server's own words from an error body, behind a colon."""
    try:
        body = json.loads(text)
    except ValueError:
        return ""
    error = body.get("error", body) if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return f": {' '.join(message.split())[:300]}" if isinstance(message, str) and message.strip() else ""


def served_models(page: Page) -> list[Mapping[str, Any]]:
    """Return the entries of ``/v1/models``; empty when the page holds no list of models."""
    data = page.get("data")
    entries = data if isinstance(data, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def generate_token(client: httpx.Client, model: str, timeout_s: float) -> Page:
    """Ask for a generation of two tokens; ``ok`` means that a token came back.

    A model without a chat template refuses the chat endpoint: then plain completion is asked for.
    """
    common = {"model": model, "max_tokens": _PROBE_TOKENS, "temperature": 0}
    chat = common | {"messages": [{"role": "user", "content": "Count to ten."}]}
    page = fetch(client, "/v1/chat/completions", body=chat, timeout_s=timeout_s)
    if page.status in (400, 404, 405, 501):
        page = fetch(client, "/v1/completions", body=common | {"prompt": "One, two,"}, timeout_s=timeout_s)
    if page.state == "ok" and not _has_token(page):
        return Page("failed", 200, page.text, "came back without a token")
    return page


def _has_token(page: Page) -> bool:
    counted = page.get("usage", "completion_tokens")
    if isinstance(counted, int):
        return counted > 0
    choices = page.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    fields = {**choice, **(message if isinstance(message, dict) else {})}
    return any(
        fields.get(name) for name in ("text", "content", "reasoning", "reasoning_content", "tool_calls")
    )
