"""From a variant to the command that starts it: program, arguments, environment, port and API key."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_sparkperf.adapters.http import open_client
from pytest_sparkperf.adapters.pages import fetch, served_models
from pytest_sparkperf.adapters.ports import LOOPBACK, answers, free_port
from pytest_sparkperf.adapters.readiness import listed
from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.core.variant import Variant, serve_arguments

_PACKAGE_ROOT = Path(__file__).parents[2]
# vLLM's own limit for its engine's start: a first start with empty compile caches takes longer.
_ENGINE_READY_S = 600


def command(variant: Variant, port: int, *, resident: bool = False) -> tuple[str, ...]:
    """Return the argument list that starts the variant on a loopback port."""
    program = (
        (sys.executable, "-m", "pytest_sparkperf.sim")
        if variant.launch == "sim"
        else (find_executable(variant), "serve")
    )
    return (*program, *serve_arguments(variant, resident=resident), "--host", LOOPBACK, "--port", str(port))


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
    defaults = {"VLLM_LOGGING_COLOR": "0", "PYTHONUNBUFFERED": "1"}
    if variant.launch == "vllm":
        # For /server_info, which tells k. Never on an address that others can reach: ours is loopback.
        defaults["VLLM_SERVER_DEV_MODE"] = "1"
    if variant.ready_timeout_s > _ENGINE_READY_S:
        defaults["VLLM_ENGINE_READY_TIMEOUT_S"] = str(math.ceil(variant.ready_timeout_s))
    env = {**defaults, **os.environ, **variant.env}
    if variant.launch == "sim":
        # The simulator is this package, wherever it was imported from.
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PACKAGE_ROOT), env.get("PYTHONPATH"))))
    return env


def choose_port(variant: Variant) -> int:
    """Return the port the user fixed, else a free one; raises ServerError when it already answers."""
    if variant.port is None:
        return free_port()
    if answers(variant.port):
        raise ServerError(
            f"port {variant.port} already answers{_who_answers(variant.port)}, and server "
            f"{variant.describe()!r} would not be the one measured; stop what listens there, or remove "
            f"`port` from the args of target {variant.target!r} (a free port is used then)."
        )
    return variant.port


def _who_answers(port: int) -> str:
    with open_client(f"http://{LOOPBACK}:{port}") as client:
        models = served_models(fetch(client, "/v1/models", timeout_s=2.0))
    return f" (it serves {listed(models)})" if models else ""


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
    given = variant.args.get("api-key")
    if given:
        return str(given if isinstance(given, str) else given[0])
    own: Mapping[str, str] = {**os.environ, **variant.env}
    return own.get("VLLM_API_KEY") or None
