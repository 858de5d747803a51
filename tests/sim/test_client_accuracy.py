"""What our client measures is what the server did: against recorded emission times, beside a busy process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from simulator_process import SimProcess, StartSimulator
from stream_reader import emissions

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts
from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.core.burst import burst_figures, common_rule
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.workload import request_body
from pytest_sparkperf.experiment.shots import Burst, fire

TOKENS = 96
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


@pytest.fixture
def busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=[0, 3], ids="k={}".format)
def server(request: pytest.FixtureRequest, simulator: StartSimulator) -> SimProcess:
    return simulator("--jit-s", "0", *(MTP if request.param else ()))


def send(server: SimProcess, streams: int) -> Burst:
    load = Load(output_tokens=TOKENS, concurrency=streams)
    model = "nvidia/Qwen3.6-35B-A3B-NVFP4"

    def build() -> list[GenerationRequest]:
        prompts = shipped_prompts(streams)[:streams]
        bodies = [
            request_body(load, prompt, model=model, salt=f"{prompt.name}-{id(server)}") for prompt in prompts
        ]
        return [
            GenerationRequest("chat", body, prompt.name, TOKENS)
            for prompt, body in zip(prompts, bodies, strict=True)
        ]

    async def run() -> Burst:
        async with open_async_client(server.url) as client:
            return await fire(client, build, Timeouts())

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.usefixtures("busy_process")
@pytest.mark.parametrize("streams", [1, 8])
def test_decode_and_output_rates_agree_with_the_recorded_emissions(server: SimProcess, streams: int) -> None:
    known = len(emissions(server.url))

    burst = send(server, streams)

    assert burst.fault is None
    records = emissions(server.url)[known:]
    assert len(records) == streams
    decode = [(TOKENS - record["tokens"][0]) / (record["last_s"] - record["first_s"]) for record in records]
    measured = [request.decode_tok_s for request in burst.requests]
    assert sorted(rate for rate in measured if rate is not None) == pytest.approx(sorted(decode), rel=0.01)
    figures = burst_figures(burst.requests, common_rule(burst.requests))
    begun_s = min(request.written_s for request in burst.requests if request.written_s is not None)
    truth = streams * TOKENS / (max(record["last_s"] for record in records) - begun_s)
    assert figures["output_tok_s"] == pytest.approx(truth, rel=0.01)
    arrived = (
        streams
        * TOKENS
        / (max(record["last_s"] for record in records) - min(record["arrival_s"] for record in records))
    )
    assert figures["output_tok_s"] == pytest.approx(arrived, rel=0.01)
