"""What a variant would be started with, without starting it or touching anything: for people to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.adapters.docker import place_for
from pytest_sparkperf.adapters.launch import (
    container_environment,
    environment,
    recipe_secrets,
    render_variant_recipe,
)
from pytest_sparkperf.adapters.ports import LOOPBACK
from pytest_sparkperf.core.command_words import fill
from pytest_sparkperf.core.container import Container, run_command_line
from pytest_sparkperf.core.frozen import EMPTY
from pytest_sparkperf.core.secrets import secret_values
from pytest_sparkperf.core.serve_words import ServeWords, changed, redacted
from pytest_sparkperf.core.variant import SECRET_OPTIONS, Variant, serve_arguments

# Chosen anew for each start.
_PORT, _NONCE, _OWNER = "PORT", "NONCE", "OWNER"
_ANYWHERE = "0.0.0.0"  # noqa: S104 -- in its container; published on loopback only


@dataclass(frozen=True, slots=True)
class RenderedLaunch:
    """The argument list with its secrets hidden, and the names of the variables that are set for it."""

    words: tuple[str, ...]
    env_names: tuple[str, ...]
    image: str | None = None
    notes: tuple[str, ...] = ()


def render_launch(variant: Variant, environ: Mapping[str, str] = os.environ) -> RenderedLaunch:
    """Return what would start a variant; raises ConfigError for what cannot be started as configured."""
    port = _PORT if variant.port is None else str(variant.port)
    address = ("--host", LOOPBACK, "--port", port)
    if variant.launch == "command":
        assert variant.commands is not None
        words = fill(variant.commands.start, variant, port=port, host=LOOPBACK, nonce=_NONCE)
        return _rendered(variant, words, variant.env, environ)
    if variant.launch == "docker":
        inside = ("vllm", "serve", *serve_arguments(variant), "--host", _ANYWHERE, "--port", port)
        return _contained(variant, str(variant.image), inside, port, EMPTY, environ)
    if variant.launch == "recipe":
        return _recipe(variant, port, environ)
    program = ("sparkperf", "sim") if variant.launch == "sim" else (variant.executable or "vllm", "serve")
    return _rendered(variant, (*program, *serve_arguments(variant), *address), variant.env, environ)


def _recipe(variant: Variant, port: str, environ: Mapping[str, str]) -> RenderedLaunch:
    found = render_variant_recipe(variant, environ)
    image = None if variant.executable else variant.image or found.container
    host = LOOPBACK if image is None else _ANYWHERE
    env = {**found.env, **recipe_secrets(found)}
    words = ("bash", "-c", found.shell) if found.shell else _addressed(found.served, host, port)
    if image is not None:
        return _contained(variant, image, words, port, env, environ, found.notes)
    if variant.executable and not found.shell:
        words = (variant.executable, *words[1:])
    return _rendered(variant, words, {**env, **variant.env}, environ, notes=found.notes)


def _addressed(served: ServeWords, host: str, port: str) -> tuple[str, ...]:
    hidden: dict[str, Any] = dict.fromkeys(SECRET_OPTIONS)
    return changed(served, {**hidden, "host": host, "port": port}, None).words


def _contained(
    variant: Variant,
    image: str,
    words: tuple[str, ...],
    port: str,
    recipe_env: Mapping[str, str],
    environ: Mapping[str, str],
    notes: tuple[str, ...] = (),
) -> RenderedLaunch:
    env = container_environment(variant, recipe_env)
    place = place_for(variant.model, variant.mounts, env, environ)
    user = f"{os.getuid()}:{os.getgid()}"
    container = Container(image, words, port, _NONCE, user, _OWNER, place.binds, place.variables)
    return _rendered(variant, run_command_line("docker", container), env, environ, image=image, notes=notes)


def _rendered(
    variant: Variant,
    words: tuple[str, ...],
    env: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    image: str | None = None,
    notes: tuple[str, ...] = (),
) -> RenderedLaunch:
    secrets = secret_values({**environ, **environment(variant), **env})
    return RenderedLaunch(redacted(words, secrets), tuple(sorted(env)), image, notes)
