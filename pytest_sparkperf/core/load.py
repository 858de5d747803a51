"""What is sent to the server: the load of one gate, with the defaults that give a limit one meaning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pytest_sparkperf.core.frozen import EMPTY, FrozenMap

Endpoint = Literal["chat", "completions"]
Sampling = Literal["greedy", "server"] | FrozenMap
PrefixCache = Literal["cold", "warm"]

# Prompts that are made here; every other dataset is a file.
RANDOM, SONNET = "random", "sonnet"
MADE_DATASETS = (RANDOM, SONNET)
# How many requests at once warm a server up for an open loop, in which nobody knows how many there will be.
_WARM_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one gate.

    ``dataset`` None stands for the shipped prompts, which are of about 1,000 tokens where ``prompt_tokens``
    is None; ``messages`` and ``tools`` are files of the user's own; ``seed`` decides which prompts a dataset
    gives; with ``own_lengths`` an answer is as long as its prompt's dataset says, and ``output_tokens`` where
    it does not; without ``ignore_eos`` it ends where the model ends it, there at the latest; ``depth`` tokens
    stand before each prompt as an earlier turn; ``sampling`` is ``"greedy"``
    (temperature 0), ``"server"`` (whatever the server defaults to) or the request's own sampling fields;
    ``body`` holds further request fields; ``queueing`` allows more concurrent requests than the server runs.
    ``requests`` are sent as one run: each of ``concurrency`` workers sends its next when its last has ended,
    or with a ``request_rate`` (per second) they are sent when they are due, ``burstiness`` being the shape of
    their gaps; then ``concurrency`` caps those under way, where the user ``capped`` them. ``slo`` are limits
    (ms) that a request must meet to count for goodput.
    """

    endpoint: Endpoint = "chat"
    dataset: str | None = None
    messages: str | None = None
    tools: str | None = None
    seed: int = 0
    prompt_tokens: int | None = None
    depth: int = 0
    system_prompt: str | None = None
    output_tokens: int = 256
    own_lengths: bool = False
    ignore_eos: bool = True
    concurrency: int = 1
    thinking: bool = False
    sampling: Sampling = "greedy"
    body: FrozenMap = EMPTY
    prefix_cache: PrefixCache = "cold"
    queueing: bool = False
    requests: int | None = None
    request_rate: float | None = None
    burstiness: float = 1.0
    capped: bool = True
    slo: FrozenMap = EMPTY

    @property
    def is_run(self) -> bool:
        """Tell whether so many requests are one run, in segments, rather than bursts in rounds."""
        return self.requests is not None

    @property
    def burst(self) -> Load:
        """The bursts of rounds, or those that warm a server up for a run."""
        if not self.is_run:
            return self
        concurrency = self.concurrency if self.capped else min(self.concurrency, _WARM_CONCURRENCY)
        return replace(self, concurrency=concurrency, requests=None, request_rate=None)
