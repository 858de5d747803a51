"""What is sent to the server: the load of one gate, with the defaults that give a limit one meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.core.frozen import EMPTY, FrozenMap

Endpoint = Literal["chat", "completions"]
Sampling = Literal["greedy", "server"] | FrozenMap
PrefixCache = Literal["cold", "warm"]


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one gate.

    ``prompt_tokens`` None stands for the shipped prompts of about 1,000 tokens; ``sampling`` is ``"greedy"``
    (temperature 0), ``"server"`` (whatever the server defaults to) or the request's own sampling fields;
    ``body`` holds further request fields; ``queueing`` allows more concurrent requests than the server runs.
    """

    endpoint: Endpoint = "chat"
    prompt_tokens: int | None = None
    output_tokens: int = 256
    concurrency: int = 1
    thinking: bool = False
    sampling: Sampling = "greedy"
    body: FrozenMap = EMPTY
    prefix_cache: PrefixCache = "cold"
    queueing: bool = False
