"""Requests of somebody else that a simulated engine serves beside those of its clients (a fault)."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random

from pytest_sparkperf.sim.engine import EngineRequest
from pytest_sparkperf.sim.faults import Faults
from pytest_sparkperf.sim.runner import EngineRunner
from pytest_sparkperf.sim.tokenizer import VOCABULARY
from pytest_sparkperf.sim.words import prompt_digest

_PROMPT_TOKENS = 200
_OUTPUT_TOKENS = 64


class ForeignTraffic:
    """Sends requests at random instants while the fault is on; their tokens are counted as any others."""

    def __init__(self, runner: EngineRunner, seed: int) -> None:
        self._runner = runner
        self._random = Random(seed)
        self._numbers = count(1)
        self._task: asyncio.Task[None] | None = None
        self._rate: float | None = None

    def follow(self, faults: Faults) -> None:
        """Start, change or stop the traffic as the faults say."""
        if faults.foreign_traffic == self._rate:
            return
        self._rate = faults.foreign_traffic
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._rate is not None:
            self._task = asyncio.get_running_loop().create_task(self._send(self._rate))

    async def _send(self, requests_per_s: float) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(requests_per_s))
            self._runner.submit(self._request(), lambda _: None)

    def _request(self) -> EngineRequest:
        prompt_ids = [self._random.randrange(VOCABULARY) for _ in range(_PROMPT_TOKENS)]
        name = f"foreign {next(self._numbers)}"
        return EngineRequest(name, prompt_ids, prompt_digest(prompt_ids), _OUTPUT_TOKENS)
