"""The keys of a target in sparkperf.yaml as data: for which launch kinds, and what is wrong with a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.faults import Fault, shown, unknown_keys
from pytest_sparkperf.core.kinds import (
    COUNT,
    COUNT_OR_ZERO,
    ENV_NAME,
    POSITIVE,
    TEXT,
    Kind,
    is_environment_value,
    is_plain_mapping,
    one_of,
)
from pytest_sparkperf.core.vllm_options import option_faults, speculative_mapping

ValueFaults = Callable[[Any], Iterator[Fault]]


@dataclass(frozen=True, slots=True)
class TargetKey:
    """One key of a target; the faults' paths start below the key."""

    launches: tuple[str, ...]
    faults: ValueFaults


def _of_kind(kind: Kind, way_out: str) -> ValueFaults:
    def faults(value: Any) -> Iterator[Fault]:
        if not kind.accepts(value):
            yield Fault((), f"{shown(value)} is not {kind.says}; {way_out}")

    return faults


def _options(value: Any) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield Fault(
            (), f"{shown(value)} is not a mapping; give vLLM options by name, such as max-num-seqs: 32"
        )
        return
    yield from (Fault((key,), text) for key, text in option_faults(value))


def _environment(value: Any) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield Fault(
            (), f"{shown(value)} is not a mapping; give variables by name, such as CUTE_DSL_ARCH: sm_121a"
        )
        return
    for name, text in value.items():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            yield Fault(
                (name,), "is not the name of an environment variable; use letters, digits and underscores"
            )
        elif text is None:
            yield Fault((name,), 'has no value; write "" for an empty one, or leave the variable out')
        elif not is_environment_value(text):
            # The value may be a secret, so it is not shown.
            yield Fault((name,), "has a value that is no text, number, true or false; put it in quotes")


def _speculative(value: Any) -> Iterator[Fault]:
    if not is_plain_mapping(value):
        yield Fault((), f"{shown(value)} is not a mapping; write {{method: mtp}}, and the draft tokens as k:")
        return
    try:
        speculative_mapping(value)
    except ConfigError as error:
        yield Fault((), str(error))


def _url(value: Any) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield from (Fault((), text) for text in _one_url(value))
        return
    if not value:
        yield Fault((), "{} names no server; give a URL, or one per k")
    for k, url in value.items():
        if not COUNT_OR_ZERO.accepts(k):
            yield Fault((k,), f"{shown(k)} is not a k; give URLs by k, such as 3: http://127.0.0.1:8000")
        yield from (Fault((k,), text) for text in _one_url(url))


def _one_url(url: Any) -> Iterator[str]:
    parts = _split(url)
    if parts is None:
        yield f"{shown(url)} is not the URL of a server; give its root, such as http://127.0.0.1:8000"
    elif parts.username or parts.password:
        yield "holds a user name or password; put the key into an environment variable, named by api_key_env:"
    elif parts.query or parts.fragment:
        yield f"{shown(url)} is not the root of a server; leave out everything from the ? or # on"


def _split(url: Any) -> SplitResult | None:
    if not isinstance(url, str) or any(letter.isspace() for letter in url):
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def root_url(url: str) -> str:
    """Return a server's root: no trailing slash, no ``/v1``, which people copy from client settings."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _api_key(value: Any) -> Iterator[Fault]:
    if not isinstance(value, str) or not ENV_NAME.fullmatch(value):
        # People paste the key itself here, so it is not shown.
        yield Fault((), "is not the name of an environment variable; give its name, never the key itself")


def _hardware(value: Any) -> Iterator[Fault]:
    kinds = {"gpu": TEXT, "count": COUNT, "memory_gib": POSITIVE}
    if not isinstance(value, Mapping):
        yield Fault(
            (), f"{shown(value)} is not a mapping; write {{gpu: NVIDIA GB10, count: 1, memory_gib: 128}}"
        )
        return
    yield from unknown_keys(value, kinds)
    if "gpu" not in value:
        yield Fault((), "gpu is missing; give the name that nvidia-smi shows on the server's machine")
    for key, item in value.items():
        if key in kinds and not kinds[key].accepts(item):
            yield Fault((key,), f"{shown(item)} is not {kinds[key].says}")


LAUNCHES = ("vllm", "docker", "recipe", "command", "attach", "sim")
_STARTED = ("vllm", "docker", "recipe", "command", "sim")
_ELSEWHERE = ("attach", "command")

TARGET_KEYS: Mapping[str, TargetKey] = MappingProxyType(
    {
        "launch": TargetKey(LAUNCHES, _of_kind(one_of(*LAUNCHES), "say how the server is had")),
        "executable": TargetKey(
            ("vllm",), _of_kind(TEXT, "give vllm's path, or leave it out for the one on PATH")
        ),
        "model": TargetKey(LAUNCHES, _of_kind(TEXT, "give a model's name or its folder")),
        "args": TargetKey(_STARTED, _options),
        "env": TargetKey(_STARTED, _environment),
        "speculative": TargetKey(_STARTED, _speculative),
        "k": TargetKey(LAUNCHES, _of_kind(COUNT_OR_ZERO, "give num_speculative_tokens, 0 for none")),
        "resident": TargetKey(_STARTED, _options),
        "ready_timeout_s": TargetKey(LAUNCHES, _of_kind(POSITIVE, "give seconds, such as 900")),
        "url": TargetKey(_ELSEWHERE, _url),
        "api_key_env": TargetKey(_ELSEWHERE, _api_key),
        "traffic": TargetKey(
            ("attach",), _of_kind(one_of("exclusive", "shared"), "shared spares a server that others use")
        ),
        "hardware": TargetKey(_ELSEWHERE, _hardware),
    }
)
