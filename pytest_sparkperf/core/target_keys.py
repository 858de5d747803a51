"""The keys of a target in sparkperf.yaml as data: for which launch kinds, and what is wrong with a value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    MAPPING,
    POSITIVE,
    TEXT,
    Kind,
    is_environment_value,
    is_number,
    is_plain_mapping,
    one_of,
)
from pytest_sparkperf.core.targets import LAUNCHES, STARTED_LAUNCHES
from pytest_sparkperf.core.vllm_options import option_faults, speculative_mapping

NOT_NEGATIVE = Kind("a number of 0 or more", lambda value: is_number(value) and value >= 0)

ValueFaults = Callable[[Any], Iterator[Fault]]


@dataclass(frozen=True, slots=True)
class TargetKey:
    """One key of a target; the faults' paths start below the key."""

    launches: Sequence[str]
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


def command_words(written: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command that is written as one line or as a list."""
    return tuple(shlex.split(written)) if isinstance(written, str) else tuple(written)


def _command(value: Any) -> Iterator[Fault]:
    example = 'give a line or a list of words, such as ["sparkrun", "run", "qwen36", "--port", "{port}"]'
    try:
        words = command_words(value) if isinstance(value, str | list | tuple) else ()
    except ValueError as error:
        yield Fault((), f"{shown(value)} cannot be split into words ({str(error).lower()}); {example}")
        return
    if not words or not all(isinstance(word, str) and word for word in words):
        yield Fault((), f"{shown(value)} is not a command; {example}")
        return
    for name in sorted({name for word in words for name in _PLACEHOLDER.findall(word)}):
        if name not in PLACEHOLDERS:
            text = (
                f"has the placeholder {{{name}}}; valid are {', '.join(f'{{{one}}}' for one in PLACEHOLDERS)}"
            )
            yield Fault((), text)


def _probe(value: Any) -> Iterator[Fault]:
    try:
        words = command_words(value) if isinstance(value, str | list | tuple) else ()
    except ValueError:
        words = ()
    if not words or not all(isinstance(word, str) and word for word in words):
        yield Fault(
            (),
            f"{shown(value)} is not a command; give what runs another one where the server is, such as "
            "[ssh, -o, BatchMode=yes, spark2]",
        )


def _mounts(value: Any) -> Iterator[Fault]:
    example = "give HOST:CONTAINER or HOST:CONTAINER:ro, such as ./templates:/templates:ro"
    if not isinstance(value, list | tuple):
        yield Fault((), f"{shown(value)} is not a list; {example}")
        return
    for place, mount in enumerate(value):
        if not isinstance(mount, str) or not _MOUNT.fullmatch(mount):
            yield Fault((place,), f"{shown(mount)} is not a mount; {example}")
        elif "docker.sock" in mount:
            yield Fault(
                (place,), "would hand docker's socket, and with it this machine, to the server; leave it out"
            )


# What a word of a command may hold, filled in for each start.
PLACEHOLDERS = ("port", "host", "k", "model", "speculative_config", "args", "nonce")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_MOUNT = re.compile(r"[^:]+:/[^:]*(?::r[ow])?")

_STARTED = STARTED_LAUNCHES
_ELSEWHERE = ("attach", "command")
_IN_CONTAINER = ("docker", "recipe")

TARGET_KEYS: Mapping[str, TargetKey] = MappingProxyType(
    {
        "launch": TargetKey(LAUNCHES, _of_kind(one_of(*LAUNCHES), "say how the server is had")),
        "executable": TargetKey(
            ("vllm", "recipe"), _of_kind(TEXT, "give vllm's path, or leave it out for the one on PATH")
        ),
        "model": TargetKey(LAUNCHES, _of_kind(TEXT, "give a model's name or its folder")),
        "args": TargetKey(_STARTED, _options),
        "env": TargetKey(_STARTED, _environment),
        "speculative": TargetKey(_STARTED, _speculative),
        "k": TargetKey(LAUNCHES, _of_kind(COUNT_OR_ZERO, "give num_speculative_tokens, 0 for none")),
        "resident": TargetKey(_STARTED, _options),
        "ready_timeout_s": TargetKey(LAUNCHES, _of_kind(POSITIVE, "give seconds, such as 900")),
        "silence_timeout_s": TargetKey(
            LAUNCHES, _of_kind(POSITIVE, "give the seconds of silence that end a request, such as 60")
        ),
        "url": TargetKey(_ELSEWHERE, _url),
        "api_key_env": TargetKey(_ELSEWHERE, _api_key),
        "traffic": TargetKey(
            ("attach",), _of_kind(one_of("exclusive", "shared"), "shared spares a server that others use")
        ),
        "hardware": TargetKey(_ELSEWHERE, _hardware),
        "probe": TargetKey(_ELSEWHERE, _probe),
        "image": TargetKey(
            _IN_CONTAINER, _of_kind(TEXT, "give a container image, such as vllm/vllm-openai:v0.24.0")
        ),
        "mounts": TargetKey(_IN_CONTAINER, _mounts),
        "recipe": TargetKey(("recipe",), _of_kind(TEXT, "give the path of a recipe's YAML file")),
        "overrides": TargetKey(
            ("recipe",), _of_kind(MAPPING, "give values for the recipe's placeholders by name")
        ),
        "start": TargetKey(("command",), _command),
        "ready": TargetKey(("command",), _command),
        "stop": TargetKey(("command",), _command),
        "memory_floor_gib": TargetKey(
            _STARTED, _of_kind(NOT_NEGATIVE, "give GiB that must stay available, 0 for no floor")
        ),
    }
)
