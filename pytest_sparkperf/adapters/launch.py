"""From a variant to what starts it: program, arguments, environment, port, and what ends it again."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_sparkperf.adapters.docker import Docker, container_line, end_command, make_folders, place_for
from pytest_sparkperf.adapters.http import open_client
from pytest_sparkperf.adapters.pages import fetch, served_models
from pytest_sparkperf.adapters.ports import LOOPBACK, answers, free_port
from pytest_sparkperf.adapters.process import new_nonce
from pytest_sparkperf.adapters.readiness import listed
from pytest_sparkperf.adapters.recipe_file import read_recipe
from pytest_sparkperf.core.command_words import fill
from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.recipe import Rendered, for_variant, render_recipe
from pytest_sparkperf.core.serve_words import changed
from pytest_sparkperf.core.variant import SECRET_OPTIONS, Variant, serve_arguments

STOP_TIMEOUT_S = 15.0
_PACKAGE_ROOT = Path(__file__).parents[2]
# vLLM's own limit for its engine's start: a first start with empty compile caches takes longer.
_ENGINE_READY_S = 600
# The variables in which vLLM reads its secret options.
_SECRET_VARIABLES = {"api-key": "VLLM_API_KEY", "hf-token": "HF_TOKEN"}
# In its container a server must listen on the address that docker publishes.
_ANYWHERE = "0.0.0.0"  # noqa: S104 -- published on loopback only


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that starts one server and ends it.

    ``shows_port`` says whether the port is held by a process below ours, so that it can be checked. ``facts``
    are what the launch knows of the server; ``notes`` what a person should know. ``api_key`` is the one that
    a recipe names.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    url: str
    port: int
    nonce: str
    served_name: str | None
    cwd: Path | None = None
    stop_commands: tuple[tuple[str, ...], ...] = ()
    cleanup_commands: tuple[tuple[str, ...], ...] = ()
    ready_command: tuple[str, ...] = ()
    stays: bool = False
    shows_port: bool = True
    facts: Mapping[str, Any] = EMPTY
    notes: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)


def plan_launch(variant: Variant, *, progress: Callable[[str], None] = lambda _: None) -> Launch:
    """Return what starts a variant, its port chosen and its image pulled.

    Raises ConfigError for what cannot be started as configured, ServerError for what this machine lacks.
    """
    port = choose_port(variant)
    if variant.launch == "command":
        return _command_launch(variant, port)
    if variant.launch == "docker":
        return _docker_launch(variant, port, progress)
    if variant.launch == "recipe":
        return _recipe_launch(variant, port, progress)
    return _local_launch(variant, command(variant, port), environment(variant), port)


def command(variant: Variant, port: int) -> tuple[str, ...]:
    """Return the argument list that starts the variant (launch ``vllm`` or ``sim``) on a loopback port."""
    program = (
        (sys.executable, "-m", "pytest_sparkperf.sim")
        if variant.launch == "sim"
        else (find_executable(variant), "serve")
    )
    return (*program, *serve_arguments(variant), "--host", LOOPBACK, "--port", str(port))


def render_variant_recipe(variant: Variant, environ: Mapping[str, str] = os.environ) -> Rendered:
    """Return the variant's recipe rendered with its overrides, options and k; raises ConfigError."""
    assert variant.recipe is not None
    recipe = read_recipe(Path(variant.recipe))
    overrides = dict(variant.overrides) | ({"model": variant.model} if variant.model else {})
    return for_variant(render_recipe(recipe, overrides, environ), variant)


def find_executable(variant: Variant) -> str:
    """Return the path of the variant's vLLM; raises ServerError when there is none."""
    wanted = variant.executable or "vllm"
    found = shutil.which(wanted, path=environment(variant).get("PATH"))
    if found is None:
        where = "is no executable file" if "/" in wanted else "is not on PATH"
        raise ServerError(
            f"{wanted!r} {where}; install vLLM, or set `executable:` of target {variant.target!r} to the "
            "vllm command of the environment that has it."
        )
    return found


def environment(variant: Variant) -> dict[str, str]:
    """Return the server's complete environment: ours, what makes vLLM readable, then the variant's own."""
    env = {**_defaults(variant), **os.environ, **variant.env, **_secrets(variant)}
    if variant.launch == "sim":
        # The simulator is this package, wherever it was imported from.
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGE_ROOT), env.get("PYTHONPATH"))))
    return env


def container_environment(variant: Variant, recipe: Mapping[str, str] = EMPTY) -> dict[str, str]:
    """Return the variables that are passed into a container, over what its image has."""
    # Other containers may reach its address, so that it is not shown what only tests should see.
    defaults = {name: value for name, value in _defaults(variant).items() if name != "VLLM_SERVER_DEV_MODE"}
    return {**defaults, **recipe, **variant.env, **_secrets(variant)}


def choose_port(variant: Variant) -> int:
    """Return the port the user fixed, else a free one; raises ServerError when it already answers."""
    fixed = _fixed_port(variant)
    if fixed is None:
        return free_port()
    if _is_here(variant.url) and answers(fixed):
        raise ServerError(
            f"port {fixed} already answers{_who_answers(fixed)}, and server "
            f"{variant.describe()!r} would not be the one measured; stop what listens there, or "
            f"{_other_port(variant)}."
        )
    return fixed


def api_key(variant: Variant) -> str | None:
    """Return the key that requests must carry; raises ConfigError when its variable is not set."""
    if variant.api_key_env is not None:
        key = os.environ.get(variant.api_key_env)
        if not key:
            raise ConfigError(
                f"target {variant.target!r} takes its API key from the environment variable "
                f"{variant.api_key_env}, which is not set; set it, or remove `api_key_env`."
            )
        return key
    if variant.launch == "attach":
        return None
    own: Mapping[str, str] = {**os.environ, **variant.env, **_secrets(variant)}
    return own.get("VLLM_API_KEY") or None


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether this is a CI job, where nothing is downloaded."""
    return environ.get("CI", "").lower() not in ("", "0", "false")


def _defaults(variant: Variant) -> dict[str, str]:
    defaults = {"VLLM_LOGGING_COLOR": "0", "PYTHONUNBUFFERED": "1"}
    if variant.launch in ("vllm", "recipe"):
        # For /server_info, which tells k. Never on an address that others can reach: ours is loopback.
        defaults["VLLM_SERVER_DEV_MODE"] = "1"
    if variant.ready_timeout_s > _ENGINE_READY_S:
        defaults["VLLM_ENGINE_READY_TIMEOUT_S"] = str(math.ceil(variant.ready_timeout_s))
    if in_ci() and variant.launch != "sim":
        defaults["HF_HUB_OFFLINE"] = "1"
    return defaults


def _secrets(variant: Variant) -> dict[str, str]:
    """Return the secrets among the options as variables: a command line shows in every list of processes."""
    given = {name: variant.args[name] for name in _SECRET_VARIABLES if variant.args.get(name)}
    return {
        _SECRET_VARIABLES[name]: str(value if isinstance(value, str) else value[0])
        for name, value in given.items()
    }


def _local_launch(
    variant: Variant, argv: Sequence[str], env: Mapping[str, str], port: int, **more: Any
) -> Launch:
    more.setdefault("served_name", variant.served_name)
    return Launch(
        argv=tuple(argv), env=env, url=f"http://{LOOPBACK}:{port}", port=port, nonce=new_nonce(), **more
    )


def _docker_launch(variant: Variant, port: int, progress: Callable[[str], None]) -> Launch:
    words = ("vllm", "serve", *serve_arguments(variant), "--host", _ANYWHERE, "--port", str(port))
    assert variant.image is not None, "a fault of the document where it is missing"
    return _contained(variant, variant.image, words, port, progress)


def _contained(
    variant: Variant,
    image_name: str,
    words: Sequence[str],
    port: int,
    progress: Callable[[str], None],
    **more: Any,
) -> Launch:
    docker = Docker.find(variant.target)
    image = docker.image(image_name, may_pull=not in_ci(), progress=progress)
    own = container_environment(variant, more.pop("env", {}))
    place = place_for(variant.model, variant.mounts, own, os.environ)
    make_folders(place)
    facts = {"image": image.name, "image_digest": image.digest, **more.pop("facts", {})}
    launch = _local_launch(
        variant, (), {**os.environ, **place.env}, port, facts=facts, shows_port=False, **more
    )
    line = container_line(docker, image, words, port=port, nonce=launch.nonce, place=place)
    cleanup = end_command(docker.program, launch.nonce, STOP_TIMEOUT_S)
    return replace(launch, argv=line, cleanup_commands=(cleanup,))


def _recipe_launch(variant: Variant, port: int, progress: Callable[[str], None]) -> Launch:
    rendered = render_variant_recipe(variant)
    image = variant.image or rendered.container
    more: dict[str, Any] = {"notes": rendered.notes, "served_name": rendered.served.served_name}
    facts = {} if rendered.revision is None else {"revision": rendered.revision}
    own = recipe_secrets(rendered)
    more["api_key"] = own.get("VLLM_API_KEY")
    local = variant.executable is not None or image is None
    words = _recipe_words(variant, rendered, LOOPBACK if local else _ANYWHERE, port)
    if not local:
        assert image is not None
        env = {**rendered.env, **own}
        return _contained(variant, image, words, port, progress, env=env, facts=facts, **more)
    if rendered.shell is None:
        words = (find_executable(variant), *words[1:])
    env = {**environment(variant), **rendered.env, **own, **_secrets(variant)}
    return _local_launch(variant, words, env, port, facts=facts, **more)


def recipe_secrets(rendered: Rendered) -> dict[str, str]:
    """Return the secrets among a recipe's own options, as variables."""
    given = {name: rendered.served.values(name) for name in _SECRET_VARIABLES} if not rendered.shell else {}
    return {_SECRET_VARIABLES[name]: values[0] for name, values in given.items() if values}


def _recipe_words(variant: Variant, rendered: Rendered, host: str, port: int) -> tuple[str, ...]:
    """Return the recipe's command on our address; one for a shell must take the port from a placeholder."""
    if rendered.shell is None:
        hidden: dict[str, Any] = dict.fromkeys(SECRET_OPTIONS)
        return changed(rendered.served, {**hidden, "host": host, "port": port}, None).words
    overrides = {**variant.overrides, "host": host, "port": port}
    again = render_variant_recipe(replace(variant, overrides=FrozenMap(overrides)))
    if again.served.values("port") != (str(port),):
        raise ConfigError(
            f"target {variant.target!r}: the recipe's command takes a shell and has a port of its own; write "
            "{port} where it stands."
        )
    return ("bash", "-c", again.shell or "")


def _command_launch(variant: Variant, port: int) -> Launch:
    assert variant.commands is not None, "a fault of the document where it is missing"
    nonce = new_nonce()
    url = variant.url or f"http://{LOOPBACK}:{port}"
    start, ready, stop = (
        fill(words, variant, port=port, host=LOOPBACK, nonce=nonce)
        for words in (variant.commands.start, variant.commands.ready, variant.commands.stop)
    )
    folder = Path(variant.commands.folder) if variant.commands.folder else None
    program = shutil.which(start[0], path=environment(variant).get("PATH")) or _beside(start[0], folder)
    if program is None:
        raise ServerError(
            f"{shlex.quote(start[0])} of target {variant.target!r} is no program: start: begins with a "
            "program on PATH or the path of an executable file."
        )
    return Launch(
        argv=(program, *start[1:]),
        env=environment(variant),
        url=url,
        port=port,
        nonce=nonce,
        served_name=variant.served_name,
        cwd=folder,
        ready_command=ready,
        stop_commands=(stop,) if stop else (),
        stays=bool(stop),
        shows_port=False,
    )


def _beside(program: str, folder: Path | None) -> str | None:
    path = (folder or Path.cwd()) / program
    return str(path) if "/" in program and os.access(path, os.X_OK) and path.is_file() else None


def _fixed_port(variant: Variant) -> int | None:
    if variant.url is None:
        return variant.port
    parts = urlsplit(variant.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _is_here(url: str | None) -> bool:
    return url is None or urlsplit(url).hostname in (LOOPBACK, "localhost", "::1")


def _other_port(variant: Variant) -> str:
    if variant.url is not None:
        return f"give target {variant.target!r} another url and port"
    return f"remove `port` from the args of target {variant.target!r} (a free port is used then)"


def _who_answers(port: int) -> str:
    with open_client(f"http://{LOOPBACK}:{port}") as client:
        models = served_models(fetch(client, "/v1/models", timeout_s=2.0))
    return f" (it serves {listed(models)})" if models else ""
