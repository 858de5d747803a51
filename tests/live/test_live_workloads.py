"""Workloads on real vLLM: random prompts have the length asked for, by the server's own usage."""

from __future__ import annotations

import asyncio

import pytest
from vllm_serve import MAX_NUM_SEQS, SERVED_NAME, LiveServers

from pytest_sparkperf.adapters.client import GenerationRequest, stream_request
from pytest_sparkperf.adapters.http import open_async_client, open_client
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.workload import request_body
from pytest_sparkperf.experiment.prompts import random_prompts
from pytest_sparkperf.experiment.tokens import ServerTokenizer

REQUESTS = 100
# A start, on a machine that does other work too.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    ("prompt_tokens", "thinking"), [(32, False), (512, False), (1500, False), (32, True), (512, True)]
)
def test_usage_counts_as_many_tokens_as_were_asked_for(
    live_server: LiveServers, prompt_tokens: int, thinking: bool
) -> None:
    url = live_server(0).url
    load = Load(dataset="random", prompt_tokens=prompt_tokens, output_tokens=2, thinking=thinking)
    with open_client(url) as client:
        prompts = random_prompts(load, ServerTokenizer(client, SERVED_NAME, load), REQUESTS)

    async def send() -> list[int | None]:
        slots = asyncio.Semaphore(MAX_NUM_SEQS)
        async with open_async_client(url, timeout_s=None) as client:

            async def count(body: dict[str, object]) -> int | None:
                async with slots:
                    return (await stream_request(client, GenerationRequest("chat", body))).prompt_tokens

            bodies = [request_body(load, prompt, model=SERVED_NAME, salt=None) for prompt in prompts]
            return list(await asyncio.gather(*map(count, bodies)))

    assert asyncio.run(send()) == [prompt_tokens] * REQUESTS
    assert len({prompt.text for prompt in prompts}) == REQUESTS
