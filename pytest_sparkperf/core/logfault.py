"""Finds the line of a server log that says why the server did not start or died."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.core.logline import LogLine, last_start, log_lines

FaultKind = Literal["environment", "configuration", "engine"]


@dataclass(frozen=True, slots=True)
class Fatal:
    """Why a server ended: the log's own words, whose matter it is, and what to do where that is known.

    ``environment`` is the machine (memory, port, a cold cache), ``configuration`` what was asked for,
    ``engine`` the server itself. None of the first two says anything about the build under test.
    """

    line: str
    kind: FaultKind
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class _Cause:
    pattern: re.Pattern[str]
    kind: FaultKind
    advice: str | None = None


_FREE_MEMORY = (
    "this is a check of memory, not of speed: end what else holds memory of the device, "
    "or lower gpu-memory-utilization"
)
_KV_MEMORY = "raise gpu-memory-utilization, or lower max-model-len or k"
_BUSY_PORT = "end what holds the port, or choose another one"
_SLOW_KERNEL = (
    "a kernel that compiles during inference can outlast VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS (300 s): "
    "start again with the compile cache it left, or raise that limit"
)
_COLD_CACHE = (
    "no engine process failed, none was ready within vLLM's own limit: a first start with empty compile "
    "caches can take over 600 s; raise VLLM_ENGINE_READY_TIMEOUT_S, or start again"
)
_KILLED = "no exception stands before it: the process was killed, often for want of memory (see dmesg)"

# Texts that are fatal by themselves, the most telling first. A harmless INFO line begins with "Free memory on
# device (" as well, hence the words behind the figures.
_CAUSES = (
    _Cause(re.compile(r"is less than desired GPU memory utilization"), "environment", _FREE_MEMORY),
    _Cause(re.compile(r"No available memory for the cache blocks"), "configuration", _KV_MEMORY),
    _Cause(re.compile(r"KV cache is needed, which is larger than"), "configuration", _KV_MEMORY),
    _Cause(re.compile(r"error while attempting to bind on address"), "environment", _BUSY_PORT),
    _Cause(re.compile(r"^OSError: \[Errno 98\]"), "environment", _BUSY_PORT),
    _Cause(re.compile(r"MoE backend .*does not support the deployment configuration"), "configuration"),
    _Cause(re.compile(r"^(?:vllm|api_server)[\w ./-]*: error: "), "configuration"),
    _Cause(re.compile(r"^TimeoutError: RPC call to \w+ timed out"), "engine", _SLOW_KERNEL),
    _Cause(re.compile(r"^Fatal Python error: "), "engine"),
)
# Lines which say that an engine is gone but not why, the most telling first. Those of _DEATH_OR_STOP are
# printed on an ordinary stop as well.
_NOBODY_FAILED = re.compile(r"Engine core initialization failed.*Failed core proc\(s\): \{\}")
_EXITED = re.compile(r"Engine core proc(?:ess)? \S+ died unexpectedly|engine core exited unexpectedly")
_DEATH = (
    re.compile(r"Engine core initialization failed"),
    re.compile(r"WorkerProc (?:failed to start|initialization failed)"),
    re.compile(r"EngineCore failed to start"),
    re.compile(r"EngineCore encountered a fatal error"),
)
_DEATH_OR_STOP = (_EXITED, re.compile(r"EngineDeadError: "), re.compile(r"AsyncLLM output_handler failed"))
_NO_CAUSE = (*_DEATH, *_DEATH_OR_STOP)

_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?:: .+)?$")
_VALIDATION = re.compile(r"\d+ validation errors? for \w+$")
_CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_READY = re.compile(r"Application startup complete\.")
_ENGINE_PROCESS = re.compile(r"EngineCore|Worker|Ray")
_ENGINE_FILE = re.compile(r"(?:core|multiproc_executor|gpu_worker)\.py$")
_IN_A_REQUEST = re.compile(
    r"Exception in ASGI application|Exception ignored in|exception was never retrieved"
)


def find_fatal(text: str, *, stop_requested: bool = False) -> Fatal | None:
    """Return why the server of this log ended; None where nothing says that it did.

    vLLM's last lines name no cause ("see root cause above"); wanted is the first exception of the process
    that failed first. Errors of single requests are no cause, and a server that became ready after an error
    got over it. With ``stop_requested`` the death lines of an ordinary stop count for nothing. A log without
    a fatal line is no proof of life.
    """
    lines = last_start(list(log_lines(text)))
    ready = max((at for at, line in enumerate(lines) if _READY.match(line.body)), default=-1)
    lines = [line for line in lines[ready + 1 :] if line.level in {None, "WARNING", "ERROR", "CRITICAL"}]
    signs = _DEATH if stop_requested else _NO_CAUSE
    deaths = [line.body for line in lines if any(sign.search(line.body) for sign in signs)]
    lines = _without_requests([line for line in lines if line.level != "WARNING"])
    bare = [line for line in lines if line.level is None]
    known = _known_cause(lines)
    if known is not None:
        return known
    if deaths:
        root = _root_exception([line for line in lines if _from_engine(line)]) or _root_exception(bare)
        return _nameless(deaths) if root is None else Fatal(root, "engine")
    # Before a server is ready, a bare traceback ends the process that prints it; later it may be a request's.
    root = _root_exception(bare) if ready < 0 else None
    return None if root is None else Fatal(root, "engine")


def fatal_reason(text: str, *, stop_requested: bool = False) -> str | None:
    """Return the line that says best why a server ended, without prefixes; see :func:`find_fatal`."""
    fatal = find_fatal(text, stop_requested=stop_requested)
    return None if fatal is None else fatal.line


def _known_cause(lines: Sequence[LogLine]) -> Fatal | None:
    for cause in _CAUSES:
        for line in reversed(lines):  # a log may hold several starts: the figures of the last
            if cause.pattern.search(line.body):
                return Fatal(line.body, cause.kind, cause.advice)
    return None


def _nameless(deaths: Sequence[str]) -> Fatal:
    death = next(body for sign in _NO_CAUSE for body in reversed(deaths) if sign.search(body))
    if _NOBODY_FAILED.search(death):
        return Fatal(death, "environment", _COLD_CACHE)
    return Fatal(death, "engine", _KILLED if _EXITED.search(death) else None)


def _root_exception(lines: Sequence[LogLine]) -> str | None:
    """Return the first exception; of one that was raised while another was handled, the outer one.

    The outer one is worded for users ("The checkpoint you are trying to load ..."), the inner is a KeyError.
    """
    chosen: int | None = None
    chained = False
    for at, line in enumerate(lines):
        if chosen is not None and line.speaker != lines[chosen].speaker:
            continue
        if _EXCEPTION.match(line.body) and not any(sign.search(line.body) for sign in _NO_CAUSE):
            if chosen is not None and not chained:
                break
            chosen, chained = at, False
        elif _CHAINED.search(line.body):
            chained = chosen is not None
    if chosen is None:
        return None
    found = lines[chosen].body
    if _VALIDATION.search(found) and chosen + 1 < len(lines):  # pydantic's words are on the next line
        found = f"{found}: {lines[chosen + 1].body.strip()}"
    return found


def _from_engine(line: LogLine) -> bool:
    return bool(_ENGINE_PROCESS.search(line.process or "") or _ENGINE_FILE.search(line.file or ""))


def _without_requests(lines: Sequence[LogLine]) -> list[LogLine]:
    """Drop the bare tracebacks that a web server prints for one failed request."""
    kept, inside = [], False
    for line in lines:
        if _IN_A_REQUEST.search(line.body):
            inside = True
        elif line.level is not None:
            inside = False
        if not inside:
            kept.append(line)
    return kept
