"""Checks of a server that somebody else started, each fault told in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.adapters.pages import Page, fetch, generate_token, served_models
from pytest_sparkperf.adapters.readiness import listed
from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.core.variant import Variant


class NotReadyError(ServerError):
    """The server is not there, or not yet."""


def attach_url(variant: Variant) -> str:
    """Return the server's root without a trailing slash; people also write the API's base, ending in /v1."""
    written = variant.url_for_k()
    url = written.rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"target {variant.target!r}: {written!r} is no URL of a server; "
            "write its root, for example http://127.0.0.1:8000."
        )
    return url


def read_models(client: httpx.Client, variant: Variant, timeout_s: float) -> Mapping[str, Any]:
    """Return the entry of ``/v1/models`` that the variant names, the first one when it names none."""
    page = fetch(client, "/v1/models", timeout_s=timeout_s)
    models = served_models(page)
    if not models:
        _refuse(page, variant)
    for model in models:
        if variant.served_name in (None, model["id"]):
            return model
    raise ServerError(
        f"{attach_url(variant)} serves {listed(models)}, not {variant.served_name!r}; "
        f"set `model` of target {variant.target!r} to a name that it serves, or attach the right server."
    )


def _refuse(page: Page, variant: Variant) -> NoReturn:
    url, target = attach_url(variant), variant.target
    if page.state == "refused":
        raise NotReadyError(
            f"nothing answers at {url} ({page.detail}); start the server, or correct the URL of "
            f"target {target!r}."
        )
    if page.state == "timeout":
        raise NotReadyError(
            f"{url}/v1/models {page.detail}; the server hangs or is still starting: "
            "look at its log and restart it."
        )
    if page.state == "denied":
        _deny(page, variant)
    if page.status is not None and page.status >= 500:
        raise NotReadyError(
            f"{url}/v1/models {page.detail}; wait until the server is ready, or look at its log."
        )
    what = f"did not answer in HTTP ({page.detail})" if page.state == "not_http" else page.detail
    raise ServerError(
        f"{url} does not look like an OpenAI-compatible server: /v1/models {what or 'lists no model'}; "
        f"give the server's root as the URL of target {target!r}, for example http://127.0.0.1:8000."
    )


def _deny(page: Page, variant: Variant) -> NoReturn:
    if variant.api_key_env is None:
        what = "no API key was sent; name the environment variable that holds it by `api_key_env` of target"
        raise ConfigError(f"{attach_url(variant)} answered {page.status}: {what} {variant.target!r}.")
    raise ConfigError(
        f"{attach_url(variant)} answered {page.status}: it does not accept the API key in "
        f"{variant.api_key_env}, which target {variant.target!r} names; set the right key."
    )


def check_generation(client: httpx.Client, model: str, variant: Variant, timeout_s: float) -> None:
    """Raise unless the server generates a token: health pages go on answering while an engine hangs."""
    page = generate_token(client, model, timeout_s)
    if page.state == "ok":
        return
    if page.state == "denied":
        _deny(page, variant)
    health = fetch(client, "/health", timeout_s=2.0)
    state = "" if health.status is None else f" (/health answers {health.status})"
    raise NotReadyError(
        f"{attach_url(variant)} lists its models, but a generation of 2 tokens {page.detail}{state}; "
        "its engine hangs or is gone: look at its log and restart it."
    )
