"""Targets: how a server is started or found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.kinds import did_you_mean

Launch = Literal["vllm", "docker", "recipe", "command", "attach", "sim"]
Traffic = Literal["exclusive", "shared"]

LAUNCHES: Sequence[Launch] = ("vllm", "docker", "recipe", "command", "attach", "sim")
STARTED_LAUNCHES: Sequence[Launch] = ("vllm", "docker", "recipe", "command", "sim")
# How many started servers may be up at once where the file does not say: the two of an A/B.
MAX_RESIDENT = 2
# How long a start may take where the target does not say; one that runs already is not waited for.
READY_TIMEOUT_S = 900.0
# A request that brings nothing for so long hangs; its first token gets 1 s per 1,000 prompt tokens more.
SILENCE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine of an attached server, which is not the one pytest runs on."""

    gpu: str
    count: int = 1
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands of ``launch: command``, as words; ``folder`` is where they run.

    Without ``stop`` the start command stays in the foreground for as long as the server runs; with it, it may
    return once the server is on its way.
    """

    start: tuple[str, ...]
    ready: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One server as described by the user.

    ``args`` holds vLLM options by their name (``max-model-len``; dashes), ``env`` texts. ``k`` is the
    num_speculative_tokens where a test names none. ``urls`` pairs k with a server's root; k None stands for
    any. ``api_key_env`` names an environment variable, never the key. ``recipe`` is the path of a recipe,
    ``overrides`` values for its placeholders. ``mounts`` are ``HOST:CONTAINER[:ro]``. ``probe`` runs another
    command where the server is. A start is ended when less than ``memory_floor_gib`` is available (None: as
    the machine needs it). A request that brings nothing for ``silence_timeout_s`` is given up.
    """

    name: str
    launch: Launch
    executable: str | None = None
    model: str | None = None
    args: FrozenMap = field(default=EMPTY, repr=False)
    env: FrozenMap = field(default=EMPTY, repr=False)
    speculative: FrozenMap = EMPTY
    k: int | None = None
    resident: FrozenMap = EMPTY
    ready_timeout_s: float | None = None
    urls: tuple[tuple[int | None, str], ...] = ()
    api_key_env: str | None = None
    traffic: Traffic = "exclusive"
    hardware: Hardware | None = None
    probe: tuple[str, ...] = ()
    image: str | None = None
    mounts: tuple[str, ...] = ()
    recipe: str | None = None
    overrides: FrozenMap = EMPTY
    commands: Commands | None = None
    memory_floor_gib: float | None = None
    silence_timeout_s: float = SILENCE_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Config:
    """Everything sparkperf.yaml says; ``max_resident`` is how many started servers may be up at once."""

    default_target: str | None = None
    max_resident: int = MAX_RESIDENT
    targets: Mapping[str, Target] = field(default_factory=lambda: MappingProxyType({}))
    workloads: Mapping[str, FrozenMap] = field(default_factory=lambda: MappingProxyType({}))


# Serves where nobody names a target.
SIMULATOR = Target(name="sim", launch="sim")


def find_target(targets: Mapping[str, Target], name: str | None) -> Target:
    """Return a target by name, or the only one there is; raises ConfigError that lists the valid names."""
    if name is None and len(targets) == 1:
        return next(iter(targets.values()))
    there = (
        f"targets are {', '.join(targets)}"
        if targets
        else "there are no targets; describe it in sparkperf.yaml"
    )
    if name is None:
        raise ConfigError(
            f"no target is named; {there}; name one by --sparkperf-target, by target= in the test "
            f"or by default_target: in sparkperf.yaml"
        )
    if name not in targets:
        raise ConfigError(f"target {name!r} is not known{did_you_mean(name, targets) or ';'} {there}")
    return targets[name]
