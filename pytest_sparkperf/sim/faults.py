"""Faults of a simulated server, on from its start or switched while it runs, to test what watches servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, Literal

from pytest_sparkperf.core.errors import ConfigError

Kind = Literal["switch", "count", "number", "choice"]


@dataclass(frozen=True, slots=True)
class Faults:
    """Which faults are on; counts are of tokens of one answer unless the name says otherwise."""

    die_after: int | None = None
    error_after: int | None = None
    truncate_after: int | None = None
    hang_after: int | None = None
    hang_ready: bool = False
    exit_at_start: bool = False
    no_usage: bool = False
    wrong_usage: bool = False
    ignore_sigterm: bool = False
    http_503: bool = False
    lumps: bool = False
    diverge_after: int | None = None
    tie_at: int | None = None
    tie_flip_at: int | None = None
    unsteady_after: int | None = None
    launch_after: int | None = None
    altered_argument: bool = False
    leak: bool = False
    lost_delta: int | None = None
    lost_text: int | None = None
    doubled_delta: int | None = None
    doubled_text: int | None = None
    warm_breaks: bool = False
    repeat_after: int | None = None
    past_end_after: int | None = None
    impossible_rate: bool = False
    engine_death_on: str | None = None
    foreign_traffic: float | None = None
    warm_cache: bool = False
    counter_reset: int | None = None
    slow: float | None = None
    stall_after: int | None = None
    wrong_model: bool = False
    http_429: bool = False
    slow_headers: float | None = None
    garbage_after: int | None = None
    huge_lines: int | None = None
    memory_kept: int | None = None


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """What a fault does and what kind of value switches it on; ``valid`` are the values of a choice."""

    text: str
    kind: Kind = "switch"
    valid: tuple[str, ...] = ()


def _count(text: str) -> FaultSpec:
    return FaultSpec(text, "count")


FAULTS: Mapping[str, FaultSpec] = MappingProxyType(
    {
        "die_after": _count("the process exits in the middle of the N-th generation request"),
        "error_after": _count("an error object and [DONE] follow after N tokens"),
        "truncate_after": _count("the connection closes after N tokens, before the answer is complete"),
        "hang_after": _count("nothing follows after N tokens and the connection stays open"),
        "hang_ready": FaultSpec("/health answers but a generation never does"),
        "exit_at_start": FaultSpec("the process prints a failed start and exits with 1"),
        "no_usage": FaultSpec("usage is never sent"),
        "wrong_usage": FaultSpec("usage reports twice the tokens that were sent"),
        "ignore_sigterm": FaultSpec("SIGTERM does nothing"),
        "http_503": FaultSpec("generation endpoints answer 503"),
        "lumps": FaultSpec("all chunks of an answer arrive together at its end"),
        "diverge_after": _count("after N tokens the text is another one, of which the model is sure"),
        "tie_at": _count("at token N, counted from 0, another one is all but equally likely"),
        "tie_flip_at": _count("the same, and the other one is taken"),
        "unsteady_after": _count("each second answer to a prompt is another one after N tokens"),
        "launch_after": _count("after N tokens the text hangs on the start of the process"),
        "altered_argument": FaultSpec("an argument of each tool call has another value"),
        "leak": FaultSpec("tool calls are sent as content"),
        "lost_delta": _count("the chunk with token N, counted from 0, is not sent, though usage counts it"),
        "lost_text": _count("the text of that chunk is not sent, but its token ids are"),
        "doubled_delta": _count("that chunk is sent twice"),
        "doubled_text": _count("that chunk is sent twice, the second time without its token ids"),
        "warm_breaks": FaultSpec("tool calls have a wrong argument where the prompt hit the prefix cache"),
        "repeat_after": _count("after N tokens the text repeats the same words for ever"),
        "past_end_after": _count("the model ends its answer after N tokens and goes on under ignore_eos"),
        "impossible_rate": FaultSpec("steps take a tenth of what the memory's bandwidth allows"),
        "engine_death_on": FaultSpec(
            "the engine dies at a request with tool_choice required, or with a schema",
            "choice",
            ("required", "schema"),
        ),
        "foreign_traffic": FaultSpec("the engine serves N requests per second of somebody else", "number"),
        "warm_cache": FaultSpec("the prefix cache takes no notice of cache_salt"),
        "counter_reset": _count("the counters start anew at the N-th generation request"),
        "slow": FaultSpec("every step takes N times as long", "number"),
        "stall_after": _count("the engine gives nothing out for 2 s after N tokens of a request"),
        "wrong_model": FaultSpec("pages and answers name a model that nobody asked for"),
        "http_429": FaultSpec("generation endpoints answer 429"),
        "slow_headers": FaultSpec("the head of each streamed answer takes N seconds, byte by byte", "number"),
        "garbage_after": _count("bytes that are no JSON follow after N tokens"),
        "huge_lines": _count("each line of a stream is N bytes longer than it need be"),
        "memory_kept": _count("a process that outlives the server for 60 s holds N MiB"),
    }
)
# What only says something about the start of a process.
_AT_START = frozenset({"exit_at_start"})


def parse_faults(texts: Iterable[str]) -> Faults:
    """Return the faults of repeated ``--fault NAME[=VALUE]``; raise ConfigError on one that is not known."""
    faults = Faults()
    for text in texts:
        name, separator, value = text.partition("=")
        seen = f"--fault {text!r}"
        if name not in FAULTS:
            raise ConfigError(f"{seen}: no such fault. Valid faults: {', '.join(FAULTS)}.")
        given: Any = _read(value) if separator else True
        fault = _value_fault(name, given)
        if fault is not None:
            raise ConfigError(f"{seen}: {fault}. Write {_way_out(name)}.")
        faults = replace(faults, **{name: given})
    return faults


class FaultSwitches:
    """The faults that are on at the moment; counts of requests begin when their fault is switched on."""

    def __init__(self, on: Faults) -> None:
        self.on = on
        self._since: dict[str, int] = {}
        self._listeners: list[Callable[[Faults], None]] = []

    def listen(self, listener: Callable[[Faults], None]) -> None:
        """Call ``listener`` now and after each switch."""
        self._listeners.append(listener)
        listener(self.on)

    def switch(self, name: object, value: Any, *, requests_seen: int) -> None:
        """Set one fault, None or False switches it off; raise ConfigError on what is not valid."""
        if not isinstance(name, str) or name not in FAULTS:
            raise ConfigError(f"{name!r} is no fault. Valid faults: {', '.join(FAULTS)}.")
        if name in _AT_START:
            raise ConfigError(f"{name} can only be switched on at the start. Start with --fault {name}.")
        off = value is None or value is False
        fault = None if off else _value_fault(name, value)
        if fault is not None:
            raise ConfigError(f"{name}={value!r}: {fault}. Send null to switch it off.")
        self._since[name] = requests_seen
        self.on = replace(self.on, **{name: _OFF[name] if off else value})
        for listener in self._listeners:
            listener(self.on)

    def is_due(self, name: str, request: int) -> bool:
        """Tell whether this request is the one whose number a fault names."""
        return bool(getattr(self.on, name) == request - self._since.get(name, 0))

    def page(self) -> dict[str, Any]:
        """Return the faults that are on, by name."""
        values = {name: getattr(self.on, name) for name in FAULTS}
        return {name: value for name, value in values.items() if value != _OFF[name]}


_OFF: Mapping[str, Any] = MappingProxyType({each.name: each.default for each in fields(Faults)})


def _read(text: str) -> Any:
    """Return the number that a text of the command line stands for, else the text."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def _value_fault(name: str, value: Any) -> str | None:
    spec = FAULTS[name]
    if spec.kind == "switch":
        return None if value is True else f"{name} takes no value"
    if spec.kind == "choice":
        return None if value in spec.valid else f"{name} needs one of {', '.join(spec.valid)}"
    if spec.kind == "count":
        valid = type(value) is int and value >= 1
        return None if valid else f"{name} needs a whole number of at least 1"
    valid = type(value) in (int, float) and isfinite(value) and value > 0
    return None if valid else f"{name} needs a number above 0"


def _way_out(name: str) -> str:
    spec = FAULTS[name]
    if spec.kind == "switch":
        return f"--fault {name}"
    example = spec.valid[0] if spec.valid else "5" if spec.kind == "count" else "2.5"
    return f"for example --fault {name}={example}"
