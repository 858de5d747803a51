"""256 streams at once on a simulator that keeps its pace: none fails, none loses a token, all are counted."""

from __future__ import annotations

import asyncio

import pytest
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import attach_server
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.experiment.long_run import Shooter
from pytest_sparkperf.experiment.prompts import prompts_for
from pytest_sparkperf.experiment.shots import Burst
from pytest_sparkperf.experiment.side import Side

STREAMS, TOKENS = 256, 12
PACED = ("--jit-s", "0", "--slowdown", "2", "--max-num-seqs", "512")
pytestmark = pytest.mark.slow


async def send(url: str, load: Load) -> Shooter:
    """Send a load, and hold the server's counters against its answers."""
    server = attach_server(make_variant(Target("rented", "attach", urls=((None, url),))))
    async with open_async_client(url) as client:
        side = Side(
            make_variant(Target("rented", "attach", urls=((None, url),))),
            server,
            client,
            load,
            prompts_for(server, load),
        )
        shooter = Shooter(side, load)
        await side.begin(0)
        await shooter.send()
        answers = tuple(recording.result() for _, recording in shooter.recordings)
        side.keep(Burst(answers))
        await side.end()
    assert side.fault() is None
    assert {(one.valid, one.reason, one.output_tokens) for one in answers} == {(True, None, TOKENS)}
    assert all(one.token_ids is not None and len(one.token_ids) == TOKENS for one in answers)
    return shooter


def test_a_closed_loop_of_256_workers_loses_nothing(simulator: StartSimulator) -> None:
    load = Load(
        dataset="random",
        prompt_tokens=40,
        output_tokens=TOKENS,
        concurrency=STREAMS,
        requests=2 * STREAMS,
    )

    shooter = asyncio.run(send(simulator(*PACED).url, load))

    assert (len(shooter.recordings), shooter.most_in_flight) == (2 * STREAMS, STREAMS)


def test_an_open_loop_sends_and_keeps_every_request(simulator: StartSimulator) -> None:
    load = Load(
        dataset="random",
        prompt_tokens=40,
        output_tokens=TOKENS,
        concurrency=4 * STREAMS,
        capped=False,
        requests=2 * STREAMS,
        request_rate=100.0,
    )

    shooter = asyncio.run(send(simulator(*PACED).url, load))

    assert len(shooter.recordings) == len(shooter.lags_s) == 2 * STREAMS
    assert shooter.most_in_flight > 50
