"""A simulator whose time runs faster is measured in its own seconds: the rates are the machine's."""

from __future__ import annotations

import asyncio
import time

import pytest
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import attach_server
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.experiment.side import Side
from pytest_sparkperf.sim.profiles import PROFILES
from pytest_sparkperf.sim.rehearsal import Shape, rehearse

SCALE = 5
TOKENS = 128


def test_rates_and_times_of_a_scaled_simulator_are_those_of_its_machine(simulator: StartSimulator) -> None:
    flags = ("--profile", "gb10-paired", "--jit-s", "0", "--noise", "0", "--time-scale", str(SCALE))
    variant = make_variant(Target("fast", "attach", urls=((None, simulator(*flags).url),)))

    async def run() -> RequestResult:
        server = attach_server(variant)
        assert server.time_scale == SCALE
        async with open_async_client(server.url) as client:
            side = Side(variant, server, client, Load(output_tokens=TOKENS), shipped_prompts(1))
            await side.begin(0)
            return (await side.shoot(0)).requests[0]

    begun_s = time.monotonic()
    found = asyncio.run(run())
    taken_s = time.monotonic() - begun_s

    assert found.prompt_tokens is not None
    assert found.e2el_ms is not None
    machine = rehearse(PROFILES["gb10-paired"], Shape(found.prompt_tokens, TOKENS))
    assert found.decode_tok_s == pytest.approx(machine.decode_tok_s, rel=0.03)
    assert found.e2el_ms > 1000 * taken_s
