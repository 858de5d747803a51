"""Recipes of spark-vllm-docker and sparkrun: read from a document, rendered to the command of one server.

A recipe names a container image, environment variables, defaults and a shell command with placeholders. Two
launchers read such files by different rules (see :mod:`recipe_text`); here one reading serves both. Only what
runs on one machine is rendered: several machines are started by those launchers, with ``launch: command``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap, compact_json
from pytest_sparkperf.core.kinds import ENV_NAME, environment_text, is_environment_value, shortened
from pytest_sparkperf.core.recipe_text import render, resolved
from pytest_sparkperf.core.serve_words import (
    ServeWords,
    changed,
    is_vllm,
    merged_speculation,
    read_serve_words,
)
from pytest_sparkperf.core.shell_words import ShellCommand
from pytest_sparkperf.core.variant import Variant, serve_options
from pytest_sparkperf.core.vllm_options import SPECULATIVE, arguments

_FORMATTED_VERSION = "1"
_KNOWN = frozenset(
    {
        *("recipe_version", "sparkrun_version", "name", "description", "model", "model_revision", "runtime"),
        *("runtime_version", "mode", "min_nodes", "max_nodes", "cluster_only", "solo_only", "container"),
        *("defaults", "env", "command", "metadata", "mods", "build_args"),
    }
)
# What its own launcher does and we do not: the server would not be the recipe's without it.
_NOT_DONE = {
    "mods": "are not applied: the image must hold them already",
    "build_args": "are not used: nothing is built here",
    "pre_exec": "is not run",
    "post_exec": "is not run",
    "post_commands": "are not run",
}
# Defaults that say where and on how many machines; the launcher's matter where no command is given.
_PARALLEL = ("tensor_parallel", "tensor_parallel_size")
_CLUSTER_OPTIONS = ("distributed-executor-backend", "nnodes", "node-rank", "master-addr", "headless")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe as written; ``notes`` says what is left out of it here."""

    name: str
    version: str
    model: str | None
    revision: str | None
    container: str | None
    defaults: FrozenMap
    env: FrozenMap
    command: str | None
    needs_cluster: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """The command of one server. Where ``shell`` is set it holds the text that only a shell can run."""

    served: ServeWords
    env: FrozenMap
    container: str | None
    revision: str | None
    shell: str | None = None
    notes: tuple[str, ...] = ()


def parse_recipe(document: Any, name: str) -> Recipe:
    """Read a recipe's document; raises ConfigError where it starts nothing. ``name`` is the file's."""
    if not isinstance(document, Mapping):
        raise ConfigError(f"recipe {name!r} is not a mapping of keys; name a recipe's YAML file")
    env, defaults = document.get("env") or {}, document.get("defaults") or {}
    for key, value in (("env", env), ("defaults", defaults)):
        if not isinstance(value, Mapping):
            raise ConfigError(f"recipe {name!r}: {key}: is not a mapping; give names and values")
    for variable, value in env.items():
        if not (isinstance(variable, str) and ENV_NAME.fullmatch(variable) and _is_env_value(value)):
            raise ConfigError(
                f"recipe {name!r}: env.{variable}: is no variable with a text, number, true or false"
            )
    command = document.get("command")
    if command is None and not document.get("model"):
        raise ConfigError(f"recipe {name!r} has neither a command nor a model; it starts nothing")
    return Recipe(
        name=str(document.get("name") or name),
        version=str(document.get("recipe_version") or document.get("sparkrun_version") or "2"),
        model=document.get("model"),
        revision=document.get("model_revision"),
        container=document.get("container"),
        defaults=FrozenMap({str(key): value for key, value in defaults.items()}),
        env=FrozenMap({key: environment_text("" if value is None else value) for key, value in env.items()}),
        command=None if command is None else str(command),
        needs_cluster=_needs_cluster(document),
        notes=tuple(_notes(document)),
    )


def render_recipe(recipe: Recipe, overrides: Mapping[str, Any], environ: Mapping[str, str]) -> Rendered:
    """Return the command for one machine; ``environ`` fills in the variables that the recipe's env names.

    Raises ConfigError for a recipe of several machines or of another server, and for a placeholder that
    nothing fills in.
    """
    if recipe.needs_cluster:
        raise ConfigError(
            f"recipe {recipe.name!r} is for several machines; let its own launcher start it, with "
            "launch: command"
        )
    values = {name: _text(value) for name, value in _alone(recipe.defaults, overrides).items()}
    values.setdefault("model", recipe.model or "")
    command, unknown = _command(recipe, values)
    if not is_vllm(command.words) and not (command.needs_shell and "vllm" in (recipe.command or "")):
        raise ConfigError(
            f"recipe {recipe.name!r} starts {shortened(' '.join(command.words[:3]))!r}, which is not vLLM; "
            "measure its server by launch: attach"
        )
    if unknown:
        raise ConfigError(
            f"recipe {recipe.name!r} has the placeholder {{{unknown[0]}}}, and nothing gives it a value; add "
            f"it to overrides: of the target; known are {', '.join(sorted(values))}"
        )
    env, unset = _expanded({**recipe.env, **dict(command.env)}, environ)
    return Rendered(
        served=_without_cluster(read_serve_words(command.words)),
        env=FrozenMap(env),
        container=recipe.container,
        revision=recipe.revision,
        shell=None if command.needs_shell is None else command.text,
        notes=(*recipe.notes, *(f"env {name} names a variable that is not set: left out" for name in unset)),
    )


def for_variant(rendered: Rendered, variant: Variant) -> Rendered:
    """Apply what the target and the test change: model, options, k and environment.

    Raises ConfigError where only a shell can run the command, so that its options cannot be changed.
    """
    served = rendered.served
    wanted = merged_speculation(served.speculative, variant.speculative, variant.k)
    options = {name: value for name, value in serve_options(variant).items() if name != SPECULATIVE}
    if rendered.shell is not None and (options or wanted is not None):
        raise ConfigError(
            f"target {variant.target!r}: the recipe's command takes a shell, so that no option of it can be "
            "changed; write it as one plain command, or change its placeholders by overrides:"
        )
    served = changed(served, options, wanted)
    return replace(rendered, served=served, env=FrozenMap({**rendered.env, **variant.env}))


def _command(recipe: Recipe, values: Mapping[str, str]) -> tuple[ShellCommand, tuple[str, ...]]:
    try:
        if recipe.command is None:
            return ShellCommand(("vllm", "serve", values["model"], *_flags(recipe, values))), ()
        return render(recipe.command, values, doubled_first=recipe.version == _FORMATTED_VERSION)
    except ConfigError as error:
        raise ConfigError(f"recipe {recipe.name!r}: {error}") from None


def _flags(recipe: Recipe, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options of a recipe without a command: its defaults, as sparkrun makes them."""
    known = resolved(values)
    options: dict[str, Any] = {}
    for key in known:
        if key == "model":
            continue
        name = "tensor-parallel-size" if key in _PARALLEL else key.replace("_", "-")
        value = recipe.defaults.get(key)
        several = known[key].split() if key == "served_model_name" else known[key]
        options[name] = value if isinstance(value, bool) else several
    return arguments({name: value for name, value in options.items() if value is not False})


def _alone(defaults: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one machine: its tensor parallel size is 1 unless the user gives another."""
    values = {**defaults, **overrides}
    for name in _PARALLEL:
        if name in defaults and name not in overrides:
            values[name] = 1
    return values


def _without_cluster(served: ServeWords) -> ServeWords:
    return changed(served, dict.fromkeys(_CLUSTER_OPTIONS), None)


def _needs_cluster(document: Mapping[str, Any]) -> bool:
    least = document.get("min_nodes")
    return (
        document.get("cluster_only") is True
        or (document.get("mode") == "cluster" and document.get("solo_only") is not True)
        or (isinstance(least, int) and least > 1)
    )


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        if key in _NOT_DONE:
            if value:
                listed = ", ".join(map(str, value)) if isinstance(value, list) else str(key)
                yield f"{key} {_NOT_DONE[key]} ({listed})"
        elif key not in _KNOWN:
            yield f"{key} is ignored"


def _expanded(env: Mapping[str, str], environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Fill in the variables that values name; a value that names one that is not set is left out."""
    found: dict[str, str] = {}
    unset: list[str] = []
    for name, value in env.items():
        names = [match[1] or match[2] for match in _VARIABLE.finditer(value)]
        if all(one in environ for one in names):
            found[name] = _VARIABLE.sub(lambda match: environ[match[1] or match[2]], value)
        else:
            unset.append(name)
    return found, unset


def _is_env_value(value: Any) -> bool:
    return value is None or is_environment_value(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value if isinstance(value, str) else compact_json(value)
