"""A running server to measure: started under a supervisor or attached to, checked to be the one asked for."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.adapters.attach import NotReadyError, attach_url, check_generation, read_models
from pytest_sparkperf.adapters.http import PAGE_TIMEOUT_S, httpx, open_client
from pytest_sparkperf.adapters.identity import read_facts
from pytest_sparkperf.adapters.launch import STOP_TIMEOUT_S, Launch, api_key, plan_launch
from pytest_sparkperf.adapters.logtail import read_end
from pytest_sparkperf.adapters.pages import fetch
from pytest_sparkperf.adapters.ports import held_by
from pytest_sparkperf.adapters.process import ProcessSpec, SupervisedProcess
from pytest_sparkperf.adapters.readiness import PROGRESS_S, Startup, Surroundings, log_excerpt
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.exposition import Scrape, parse_exposition
from pytest_sparkperf.core.logwarnings import log_warnings
from pytest_sparkperf.core.secrets import redact
from pytest_sparkperf.core.serverlog import parse_log
from pytest_sparkperf.core.targets import SILENCE_TIMEOUT_S
from pytest_sparkperf.core.variant import Variant

_GENERATION_TIMEOUT_S = 60.0
# Between a listener's disappearance and the report of its exit.
_EXIT_REPORT_S = 5.0
_ATTACH_POLL_S = 0.5
_OUTSIDE = Surroundings()
# What the log tells about the start, not about the server.
_NO_FACTS = ("startup_complete", "url")


@dataclass(frozen=True, slots=True)
class Server:
    """A ready server: its root, the model name that requests must use, its k (None where it cannot tell).

    ``facts`` holds what it says about itself (``version``, ``max_model_len``, ``max_num_seqs``, ...); what it
    does not say is absent.
    """

    url: str
    model: str
    k: int | None
    facts: Mapping[str, Any]
    simulated: bool = False
    api_key: str | None = field(default=None, repr=False)
    process: SupervisedProcess | None = field(default=None, repr=False)
    silence_timeout_s: float = SILENCE_TIMEOUT_S

    @property
    def time_scale(self) -> float:
        """How many of its seconds pass in one of ours: 1, but for a simulator that was told otherwise."""
        return float(self.facts.get("time_scale", 1.0))

    @property
    def log_path(self) -> Path | None:
        """The log of a started server."""
        return None if self.process is None else self.process.log_path

    @property
    def log(self) -> str | None:
        """The text of the log so far (its last 4 MiB); None for an attached server."""
        if self.process is None:
            return None
        return redact(read_end(self.process.log_path), self.process.secrets)

    def metrics(self) -> Scrape:
        """Scrape ``/metrics``; raises ServerError when the server does not give them."""
        __tracebackhide__ = True  # the caller's line says where, ours says nothing
        with open_client(self.url, api_key=self.api_key) as client:
            page = fetch(client, "/metrics")
        if page.state != "ok":
            raise ServerError(
                f"{self.url}/metrics {page.detail}; acceptance and counters are read there, so the server "
                "must be one that shows them."
            )
        return parse_exposition(page.text)

    def alive(self) -> bool:
        """Say whether the process runs; of an attached server, whether it answers HTTP at all."""
        if self.process is not None and (self.process.poll() is not None or not self.process.stays):
            return self.process.poll() is None
        with open_client(self.url, api_key=self.api_key) as client:
            return fetch(client, "/health").status is not None

    def keep(self) -> None:
        """Let a started server outlive this process; raises ServerError where that cannot be."""
        if self.process is not None:
            self.process.keep()

    def stop(self) -> None:
        """End a started server with all its processes; leave an attached one alone."""
        if self.process is not None:
            self.process.stop()


def start_server(
    variant: Variant, *, log_dir: Path, outside: Surroundings = _OUTSIDE, memory_floor: int = 0
) -> Server:
    """Start a variant and return it once it generates tokens.

    The start is ended when less than ``memory_floor`` bytes are available. Raises ConfigError for what cannot
    be started as configured, ServerError for a server that dies, hangs or is not the one asked for; then
    nothing of it runs.
    """
    key = api_key(variant)
    launch = plan_launch(variant, progress=outside.progress)
    key = key or launch.api_key
    for note in launch.notes:
        outside.progress(f"server {variant.describe()!r}: {note}")
    process = SupervisedProcess.start(_spec(launch, log_dir, variant, memory_floor))
    startup = Startup(
        variant.describe(),
        variant.target,
        launch.port,
        launch.served_name,
        variant.ready_timeout_s,
        process,
        outside,
        ready_command=launch.ready_command,
    )
    try:
        with open_client(launch.url, api_key=key) as client:
            model = startup.wait(client)
            process.ready()
            if launch.shows_port:
                _check_listener(startup)
            facts = read_facts(client, model)
            _check_still_there(startup, client)
        server = _server(launch.url, {**launch.facts, **facts}, key, process, variant)
        _check_started_k(variant, server)
    except BaseException:
        process.stop()
        raise
    return server


def _spec(launch: Launch, log_dir: Path, variant: Variant, memory_floor: int) -> ProcessSpec:
    return ProcessSpec(
        launch.argv,
        launch.env,
        _log_path(log_dir, variant),
        cwd=launch.cwd,
        stop_timeout_s=STOP_TIMEOUT_S,
        stop_commands=launch.stop_commands,
        cleanup_commands=launch.cleanup_commands,
        stays=launch.stays,
        memory_floor=memory_floor,
        nonce=launch.nonce,
    )


def attach_server(
    variant: Variant,
    *,
    outside: Surroundings = _OUTSIDE,
    page_timeout_s: float = PAGE_TIMEOUT_S,
    generation_timeout_s: float = _GENERATION_TIMEOUT_S,
) -> Server:
    """Return the running server at the variant's URL, checked for model, k and a generated token.

    One that is not ready is waited for where the target has a ``ready_timeout_s``. Raises ServerError saying
    what is wrong with it, ConfigError for a missing API key or a wrong URL.
    """
    started_s = told_s = outside.clock()
    while True:
        try:
            return _attach(variant, page_timeout_s, generation_timeout_s)
        except NotReadyError as error:
            now = outside.clock()
            if now - started_s >= variant.ready_timeout_s:
                waited = f" (waited {variant.ready_timeout_s:g} s)" if variant.ready_timeout_s else ""
                raise ServerError(f"{error}{waited}") from None
            if now - told_s >= PROGRESS_S:
                told_s = now
                outside.progress(f"server {variant.describe()!r}, {now - started_s:.0f} s: {error}")
        outside.sleep(_ATTACH_POLL_S)


def _attach(variant: Variant, page_timeout_s: float, generation_timeout_s: float) -> Server:
    url = attach_url(variant)
    key = api_key(variant)
    with open_client(url, api_key=key, timeout_s=page_timeout_s) as client:
        model = read_models(client, variant, page_timeout_s)
        check_generation(client, model["id"], variant, generation_timeout_s)
        facts = read_facts(client, model)
    server = _server(url, facts, key, None, variant)
    if None not in (variant.k, server.k) and variant.k != server.k:
        raise ServerError(
            f"{url} serves k={server.k}{_none(server.k)}, the gate asks for k={variant.k}{_none(variant.k)}; "
            f"attach a server started with {_started_with(variant.k)}, or ask for k={server.k}."
        )
    return server


def _server(
    url: str, facts: Mapping[str, Any], key: str | None, process: SupervisedProcess | None, variant: Variant
) -> Server:
    logged: dict[str, Any] = {}
    if process is not None:
        text = read_end(process.log_path)
        found = parse_log(text)
        logged = {one.name: getattr(found, one.name) for one in fields(found) if one.name not in _NO_FACTS}
        logged = {name: value for name, value in logged.items() if value not in (None, ())}
        logged |= log_warnings(text)
    k = facts["k"] if facts["k"] is not None else logged.get("k")
    everything = MappingProxyType({**logged, **facts, "k": k, "url": url})
    silence_s = variant.silence_timeout_s
    return Server(url, facts["model"], k, everything, facts["simulated"], key, process, silence_s)


def _check_listener(startup: Startup) -> None:
    pids = startup.process.pids()
    if held_by(startup.port, pids) is False:
        if not pids:
            _await_exit(startup)  # it ended just now, and its exit says more
        startup.check_alive()
        raise ServerError(
            f"server {startup.name!r} runs, but port {startup.port} is answered by a process that is not "
            f"part of it; stop that process, or name another `port` in the args of target {startup.target!r}."
        )


def _check_still_there(startup: Startup, client: httpx.Client) -> None:
    """A server that ends right after its first token must not be handed out."""
    if fetch(client, "/v1/models").status is not None:
        startup.check_alive()
        return
    _await_exit(startup)
    raise ServerError(
        f"server {startup.name!r} generated a token and then stopped answering on port {startup.port}; "
        f"look for the reason in its log.{log_excerpt(startup.process)}"
    )


def _await_exit(startup: Startup) -> None:
    """Raise the ServerError of a process that has ended, as soon as its exit is reported."""
    deadline = time.monotonic() + _EXIT_REPORT_S
    while time.monotonic() < deadline:
        startup.check_alive()
        time.sleep(0.02)


def _check_started_k(variant: Variant, server: Server) -> None:
    if None not in (variant.k, server.k) and variant.k != server.k:
        raise ServerError(
            f"server {variant.describe()!r} was started with {_started_with(variant.k)}, but serves "
            f"k={server.k}{_none(server.k)}; check `args` and `speculative` of target {variant.target!r}, "
            "and whether this vLLM knows that speculator."
        )


def _none(k: int | None) -> str:
    return " (no speculative decoding)" if k == 0 else ""


def _started_with(k: int | None) -> str:
    return f"num_speculative_tokens {k}" if k else "no speculative config"


def _log_path(folder: Path, variant: Variant) -> Path:
    """Return a new name per start, so that a second start keeps the log of the first."""
    stem = re.sub(r"[^A-Za-z0-9._=-]+", "-", variant.describe())[:80].strip("-.") or "server"
    path, number = folder / f"{stem}.log", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.log"
    return path
