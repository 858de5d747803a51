"""Waits until a started server generates a token; says what was seen when it does not."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pytest_sparkperf.adapters.command import run_command
from pytest_sparkperf.adapters.http import PAGE_TIMEOUT_S, httpx
from pytest_sparkperf.adapters.logtail import fence, read_end, read_tail
from pytest_sparkperf.adapters.pages import Page, fetch, generate_token, served_models
from pytest_sparkperf.adapters.process import SupervisedProcess
from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.core.memory import gib
from pytest_sparkperf.core.secrets import redact
from pytest_sparkperf.core.serverlog import find_fatal

_TAIL_LINES = 20
PROGRESS_S = 10.0
_POLL_S = 0.1
_READY_COMMAND_S = 30.0
# A first generation compiles kernels; each attempt waits twice as long as the one before.
_FIRST_GENERATION_S = 10.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What waiting needs from outside: a clock (s), a sleep (s) and somebody to tell about progress."""

    progress: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class Startup:
    """A server on its way up. ``wait`` returns its model's entry of ``/v1/models`` once it is ready.

    ``served_name`` is the model to wait for (None: the first one listed); ``seen`` says how far it came.
    """

    name: str
    target: str
    port: int
    served_name: str | None
    ready_timeout_s: float
    process: SupervisedProcess
    outside: Surroundings = field(default_factory=Surroundings)
    ready_command: tuple[str, ...] = ()
    seen: str = ""
    _started_s: float = 0.0
    _told_s: float = 0.0

    def wait(self, client: httpx.Client) -> Mapping[str, Any]:
        """Wait for models, then for a token; raises ServerError, ConfigError for a missing API key."""
        self._started_s = self._told_s = self.outside.clock()
        self._await_command(client)
        self.seen = f"nothing listened on port {self.port}"
        while True:
            page = fetch(client, "/v1/models", timeout_s=self._allow(client, PAGE_TIMEOUT_S))
            models = served_models(page)
            if models:
                break
            self._note(page, "/v1/models")
        model = self._pick(models)
        attempt_s = _FIRST_GENERATION_S
        while True:
            page = generate_token(client, model["id"], self._allow(client, attempt_s))
            if page.state == "ok":
                return model
            self._note(page, "a generation of 2 tokens")
            attempt_s *= 2

    def check_alive(self) -> None:
        """Raise ServerError with the log's words when the server's process has ended."""
        status = self.process.poll()
        short = self.process.short_of_memory
        if short is not None:
            raise ServerError(self._out_of_memory(short))
        if status is None:
            return
        fatal = find_fatal(read_end(self.process.log_path))
        cause = "" if fatal is None else f": {fatal.line.rstrip('.')}"
        advice = "" if fatal is None or fatal.advice is None else f" ({fatal.advice})"
        said = redact(f"{cause}{advice}", self.process.secrets)
        raise ServerError(f"server {self.name!r} {_ending(status)} while starting{said}.{self._log()}")

    def _out_of_memory(self, short: Mapping[str, int]) -> str:
        available, free, swap, floor = (
            gib(short[name]) for name in ("MemAvailable", "MemFree", "SwapFree", "floor")
        )
        return (
            f"server {self.name!r} was ended while starting: {available} of memory were available ({free} "
            f"free, {swap} of swap free), and below {floor} this machine may stall; lower "
            f"gpu-memory-utilization or kv-cache-memory-bytes of target {self.target!r}, or set its "
            f"`memory_floor_gib`.{self._log()}"
        )

    def _await_command(self, client: httpx.Client) -> None:
        """Run the user's ready command until it succeeds, if there is one."""
        if not self.ready_command:
            return
        self.seen = f"{self.ready_command[0]!r} was not run yet"
        while True:
            answer = run_command(self.ready_command, self._allow(client, _READY_COMMAND_S))
            if answer.status == 0:
                return
            self.seen = f"{self.ready_command[0]!r} said {answer.complaint!r}"
            self.outside.sleep(_POLL_S)

    def _allow(self, client: httpx.Client, wanted_s: float) -> float:
        """Return how long the next request may take; raise when the server died or its time is up."""
        self.check_alive()
        now = self.outside.clock()
        remaining_s = self._started_s + self.ready_timeout_s - now
        if remaining_s <= 0:
            self._give_up(client)
        if now - self._told_s >= PROGRESS_S:
            self._told_s = now
            last = read_tail(self.process.log_path, 1)
            said = f"; log: {redact(last[0], self.process.secrets)}" if last else ""
            self.outside.progress(f"server {self.name!r}, {now - self._started_s:.0f} s: {self.seen}{said}")
        return min(wanted_s, remaining_s)

    def _note(self, page: Page, what: str) -> None:
        if page.state == "denied":
            raise ConfigError(
                f"server {self.name!r} refuses access ({what} {page.detail}): it wants an API key; set "
                f"VLLM_API_KEY in `env` of target {self.target!r}, so that requests can carry it."
            )
        if page.state == "not_http":
            self.seen = f"port {self.port} did not answer in HTTP"
        elif page.state == "refused":
            self.seen = f"nothing listened on port {self.port}"
        else:
            self.seen = f"{what} {page.detail or 'listed no model'}"
        self.outside.sleep(_POLL_S)

    def _pick(self, models: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        for model in models:
            if self.served_name in (None, model["id"]):
                return model
        raise ServerError(
            f"server {self.name!r} serves {listed(models)}, not {self.served_name!r}; set `model` or the "
            f"option served-model-name of target {self.target!r} to a name that it serves."
        )

    def _give_up(self, client: httpx.Client) -> NoReturn:
        health = fetch(client, "/health", timeout_s=2.0)
        state = "" if health.status is None else f" (/health answers {health.status})"
        raise ServerError(
            f"server {self.name!r} was not ready within {self.ready_timeout_s:g} s: {self.seen}{state}. If "
            f"it only needs longer, raise `ready_timeout_s` of target {self.target!r}.{self._log()}"
        )

    def _log(self) -> str:
        return log_excerpt(self.process)


def log_excerpt(process: SupervisedProcess) -> str:
    """Return the end of the server's log as lines to put below a message."""
    lines = read_tail(process.log_path, _TAIL_LINES)
    if not lines:
        return f" The log {str(process.log_path)!r} is empty."
    return f" The log {str(process.log_path)!r} ends with:\n{redact(fence(lines), process.secrets)}"


def listed(models: list[Mapping[str, Any]]) -> str:
    """Return the names of models for a message."""
    return ", ".join(repr(model["id"]) for model in models)


def _ending(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
