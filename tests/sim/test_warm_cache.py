"""Loads with a warm prefix cache and with depth: filled until shown, held to it, or told why not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import attach_server
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.targets import Target, Traffic
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.experiment.prompts import prompts_for
from pytest_sparkperf.experiment.side import Side

FLAGS = ("--unpaced", "--jit-s", "0")
DETAILS = (*FLAGS, "--enable-prompt-tokens-details")
DEEP = Load(
    dataset="random", prompt_tokens=40, depth=400, output_tokens=4, concurrency=2, prefix_cache="warm"
)


def on_side(
    url: str, load: Load, what: Callable[[Side], Awaitable[None]], traffic: Traffic = "exclusive"
) -> None:
    async def run() -> None:
        variant = make_variant(Target("rented", "attach", urls=((None, url),), traffic=traffic))
        server = attach_server(variant)
        prompts = prompts_for(server, load)
        async with open_async_client(url) as client:
            await what(Side(variant, server, client, load, prompts))

    asyncio.run(run())


async def send(side: Side, index: int) -> str | None:
    await side.begin(index)
    await side.shoot(0)
    await side.end()
    return side.fault()


@pytest.mark.parametrize("traffic", ["exclusive", "shared"])
def test_the_context_is_cached_and_the_question_is_not(simulator: StartSimulator, traffic: Traffic) -> None:
    async def check(side: Side) -> None:
        for index in range(2):
            assert await send(side, index) is None
            for request in side.records[-1].bursts[0].requests:
                assert (request.valid, request.prompt_tokens) == (True, 440)
                assert request.cached_tokens is not None
                assert 368 <= request.cached_tokens <= 416

    on_side(simulator(*DETAILS).url, DEEP, check, traffic)


def test_without_depth_the_whole_prompt_is_cached(simulator: StartSimulator) -> None:
    async def check(side: Side) -> None:
        assert await send(side, 0) is None
        (request,) = side.records[-1].bursts[0].requests
        assert request.prompt_tokens is not None
        assert request.cached_tokens is not None
        assert request.prompt_tokens - 32 <= request.cached_tokens < request.prompt_tokens

    on_side(simulator(*DETAILS).url, Load(output_tokens=4, prefix_cache="warm"), check)


def test_a_cold_context_is_computed_each_time(simulator: StartSimulator) -> None:
    load = Load(prompt_tokens=40, depth=400, output_tokens=4)

    async def check(side: Side) -> None:
        for index in range(2):
            assert await send(side, index) is None
        (request,) = side.records[-1].bursts[0].requests
        assert request.cached_tokens == 0
        assert request.prompt_tokens is not None
        assert 425 <= request.prompt_tokens <= 440

    on_side(simulator(*DETAILS).url, load, check)


def test_a_prompt_below_one_block_never_gets_warm(simulator: StartSimulator) -> None:
    load = Load(dataset="random", prompt_tokens=16, output_tokens=2, prefix_cache="warm")

    async def check(side: Side) -> None:
        with pytest.raises(MeasurementError) as caught:
            await side.begin(0)
        assert str(caught.value) == (
            "the prefix cache holds 0 of the 16 tokens of 'random-0' after 4 sends: it keeps whole blocks, "
            "here of 16 tokens (block size); make what is to be cached several blocks long, and see that "
            "prefix caching is on and KV memory suffices"
        )

    on_side(simulator(*FLAGS).url, load, check)


def test_a_cache_that_is_off_is_told(simulator: StartSimulator) -> None:
    async def check(side: Side) -> None:
        with pytest.raises(MeasurementError) as caught:
            await side.begin(0)
        assert str(caught.value) == (
            "the prefix cache holds 0 of the 400 tokens of 'random-0' after 4 sends: it is off; start the "
            "server with --enable-prefix-caching"
        )

    on_side(simulator(*FLAGS, "--no-enable-prefix-caching").url, DEEP, check)


def test_a_natural_answer_may_end_before_its_limit(simulator: StartSimulator) -> None:
    load = Load(output_tokens=4000, ignore_eos=False, concurrency=4, system_prompt="Be brief.")

    async def check(side: Side) -> None:
        assert await send(side, 0) is None
        requests = side.records[-1].bursts[0].requests
        assert all(request.valid and request.finish_reason == "stop" for request in requests)
        assert len({request.output_tokens for request in requests}) > 1

    on_side(simulator(*FLAGS).url, load, check)
