"""Streams of real vLLM: what the client counts is what the server counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest
from vllm_serve import MAX_MODEL_LEN, SERVED_NAME, LiveServer, LiveServers

from pytest_sparkperf.adapters.client import GenerationRequest, stream_request
from pytest_sparkperf.adapters.http import open_async_client, open_client
from pytest_sparkperf.core.exposition import Scrape, difference, parse_exposition
from pytest_sparkperf.core.load import Endpoint, Load
from pytest_sparkperf.core.prompts import Prompt, shipped_prompts
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.validity import REJECTED
from pytest_sparkperf.core.workload import fit_prompts, request_body

KS = pytest.mark.parametrize("k", [0, 3])
OUTPUT_TOKENS = 48
# A start, on a machine that does other work too.
pytestmark = pytest.mark.timeout(900)


def request(
    prompt: Prompt, k: int, *, endpoint: Endpoint = "chat", model: str = SERVED_NAME
) -> GenerationRequest:
    load = Load(endpoint=endpoint, output_tokens=OUTPUT_TOKENS)
    return GenerationRequest(
        endpoint,
        request_body(load, prompt, model=model, salt=None),
        prompt_name=prompt.name,
        expected_tokens=OUTPUT_TOKENS,
        k=k,
    )


def stream(server: LiveServer, requests: Sequence[GenerationRequest]) -> list[RequestResult]:
    """Send all at once."""

    async def send() -> list[RequestResult]:
        async with open_async_client(server.url, timeout_s=None) as client:
            return list(await asyncio.gather(*(stream_request(client, one) for one in requests)))

    return asyncio.run(send())


def settled_scrape(server: LiveServer) -> Scrape:
    """Read the counters until two readings agree: they follow the streams with a delay."""
    deadline = time.monotonic() + 60
    with open_client(server.url) as client:
        last: float | None = None
        while time.monotonic() < deadline:
            scrape = parse_exposition(client.get("/metrics").text)
            running = scrape.total("vllm:num_requests_running")
            total = scrape.total("vllm:generation_tokens_total")
            if total is not None and total == last and running == 0:
                return scrape
            last = total
            time.sleep(0.2)
    raise AssertionError(f"the counters of {server.url} do not settle")


def short_prompts() -> tuple[Prompt, ...]:
    return tuple(
        Prompt(topic, f"Tell me about {topic}.") for topic in ("integers", "while", "the global statement")
    )


@KS
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_tokens_are_those_the_server_counted(live_server: LiveServers, k: int, endpoint: Endpoint) -> None:
    server = live_server(k)
    before = settled_scrape(server)
    results = [stream(server, [request(prompt, k, endpoint=endpoint)])[0] for prompt in short_prompts()]
    counted = difference(before, settled_scrape(server))
    assert [result.output_tokens for result in results] == [OUTPUT_TOKENS] * 3
    assert counted.total("vllm:generation_tokens_total") == 3 * OUTPUT_TOKENS
    assert counted.total("vllm:prompt_tokens_total") == sum(result.prompt_tokens or 0 for result in results)
    assert [len(result.token_ids or ()) for result in results] == [OUTPUT_TOKENS] * 3


@KS
def test_concurrent_tokens_are_those_the_server_counted(live_server: LiveServers, k: int) -> None:
    server = live_server(k)
    before = settled_scrape(server)
    results = stream(server, [request(prompt, k) for prompt in shipped_prompts(1)])
    counted = difference(before, settled_scrape(server))
    assert [(result.valid, result.reason, result.error) for result in results] == [(True, None, None)] * 4
    assert counted.total("vllm:generation_tokens_total") == sum(
        result.output_tokens or 0 for result in results
    )
    assert counted.total("vllm:request_success_total") == 4


@KS
def test_a_stream_is_valid_and_has_times(live_server: LiveServers, k: int) -> None:
    (result,) = stream(live_server(k), [request(short_prompts()[0], k)])
    assert (result.valid, result.reason, result.error) == (True, None, None)
    assert result.ttft_ms is not None
    assert result.e2el_ms is not None
    assert 0 < result.ttft_ms < result.e2el_ms
    assert result.decode_tok_s is not None
    assert result.token_events <= OUTPUT_TOKENS


def test_draft_tokens_do_not_change_the_text(live_server: LiveServers) -> None:
    answers = {
        k: [
            (result.valid, result.text, result.token_ids)
            for prompt in (*short_prompts(), *shipped_prompts(1))
            for result in stream(live_server(k), [request(prompt, k)])
        ]
        for k in (0, 3)
    }
    assert answers[0] == answers[3]
    assert all(text for _, text, _ in answers[0])


def test_a_server_without_drafts_has_no_counters_for_them(live_server: LiveServers) -> None:
    assert settled_scrape(live_server(0)).total("vllm:spec_decode_num_drafts_total") is None
    assert settled_scrape(live_server(3)).total("vllm:spec_decode_num_drafts_total") is not None


def test_prompts_are_fitted_by_the_servers_own_count(live_server: LiveServers) -> None:
    server = live_server(0)
    with open_client(server.url) as client:

        def count_tokens(text: str) -> int:
            body = {
                "model": SERVED_NAME,
                "messages": [{"role": "user", "content": text}],
                "chat_template_kwargs": {"enable_thinking": False},
            }
            return int(client.post("/tokenize", json=body).raise_for_status().json()["count"])

        prompts = fit_prompts(shipped_prompts(1), 2_500, count_tokens, shipped_prompts(32))
    for result in stream(server, [request(prompt, 0) for prompt in prompts]):
        assert result.prompt_tokens is not None
        # The last word may be several tokens.
        assert 2_490 <= result.prompt_tokens <= 2_500


@KS
def test_a_model_that_is_not_served_is_refused(live_server: LiveServers, k: int) -> None:
    (result,) = stream(live_server(k), [request(short_prompts()[0], k, model="absent")])
    assert (result.valid, result.reason, result.status) == (False, REJECTED, 404)
    assert result.error is not None
    assert "The model `absent` does not exist." in result.error


@KS
def test_a_prompt_beyond_the_context_is_refused(live_server: LiveServers, k: int) -> None:
    too_long = Prompt("too-long", "word " * (MAX_MODEL_LEN + 1))
    (result,) = stream(live_server(k), [request(too_long, k)])
    assert (result.valid, result.reason, result.status) == (False, REJECTED, 400)
    assert result.error is not None
    assert f"maximum context length is {MAX_MODEL_LEN} tokens" in result.error
