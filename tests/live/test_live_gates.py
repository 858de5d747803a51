"""Gates on real vLLM: every k measured, tokens and drafts as the server counts them, both verdicts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import pytest
from proven_run import proven_run
from vllm_serve import SERVED_NAME, LiveServer, LiveServers

from pytest_sparkperf.adapters.client import GenerationRequest, stream_request
from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import Server, attach_server
from pytest_sparkperf.core.acceptance import acceptance_between, acceptance_since_start, pool_intervals
from pytest_sparkperf.core.exposition import Scrape, difference
from pytest_sparkperf.core.gate import GateSpec, parse_mark
from pytest_sparkperf.core.heat import NO_HEAT
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.serverlog import SpecDecodingInterval, spec_decoding_intervals
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.core.workload import request_body
from pytest_sparkperf.experiment.counters import settled_scrape
from pytest_sparkperf.experiment.measure import Conditions, Measurement
from pytest_sparkperf.experiment.prompts import prompts_for
from pytest_sparkperf.experiment.side import Side

# Long enough a stream that other work on the machine does not look like a change of the server.
TOKENS = 256
SMALL = {"prompt_tokens": 64, "output_tokens": TOKENS, "max_rounds": 3}
# The server prints its statistics every 2 s (VLLM_LOG_STATS_INTERVAL in vllm_serve.py).
LOG_WAIT_S = 30


async def measure(
    server: Server, side_of: Callable[..., Side], spec: GateSpec
) -> tuple[Result, Side, Scrape, Scrape]:
    async with open_async_client(server.url) as client:
        before = await settled_scrape(client)
        side = side_of(client)
        result = await Measurement({"B": side}, spec, Conditions(gates=1, thermal=NO_HEAT)).run()
        after = await settled_scrape(client)
    assert before is not None
    assert after is not None
    return result, side, before, after


@pytest.fixture(scope="module", params=[0, 1, 2, 3], ids="k={}".format)
def live(request: pytest.FixtureRequest, live_server: LiveServers) -> LiveServer:
    return live_server(request.param)


def test_every_token_and_draft_is_counted_as_the_server_counts_them(live: LiveServer) -> None:
    variant = make_variant(Target(SERVED_NAME, "attach", urls=((live.k, live.url),)), k=live.k)
    server = attach_server(variant)
    spec = parse_mark(SMALL)
    prompts = prompts_for(server, spec.load)
    result, side, before, after = asyncio.run(
        measure(server, lambda client: Side(variant, server, client, spec.load, prompts), spec)
    )

    sent = [request for burst in side.everything() for request in burst.requests]
    assert server.k == live.k
    assert {(request.valid, request.output_tokens) for request in sent} == {(True, TOKENS)}
    assert all(request.token_ids is not None and len(request.token_ids) == TOKENS for request in sent)
    assert difference(before, after).total("vllm:generation_tokens_total") == TOKENS * len(sent)
    assert result.tpot_rule == "minus_first_event"
    counted = acceptance_between(before, after)
    if live.k == 0:
        assert counted is None
        return
    assert counted is not None
    assert counted.k == live.k
    since_start = acceptance_since_start(after)
    assert since_start is not None
    logged = pool_intervals(_settled_intervals(live.log_path, since_start.draft_tokens))
    assert logged is not None
    assert (logged.accepted_tokens, logged.draft_tokens, logged.drafts) == (
        since_start.accepted_tokens,
        since_start.draft_tokens,
        since_start.drafts,
    )
    # Every request is the same work at temperature 0, so any window of whole rounds has the same acceptance.
    rounds = side.acceptance([record.index for record in side.records])
    assert rounds is not None
    assert rounds.rate == pytest.approx(counted.rate)


def _settled_intervals(log: Path, draft_tokens: float) -> Sequence[SpecDecodingInterval]:
    """Wait until the log's lines account for all drafts of the server's life."""
    deadline = time.monotonic() + LOG_WAIT_S
    while True:
        intervals = spec_decoding_intervals(log.read_text())
        pooled = pool_intervals(intervals)
        if (pooled is not None and pooled.draft_tokens >= draft_tokens) or time.monotonic() > deadline:
            return intervals
        time.sleep(0.2)


def decode_rate(url: str, k: int) -> float:
    """Return the median decode rate of eight single streams, by a client that knows nothing of gates."""
    body = request_body(Load(output_tokens=TOKENS), shipped_prompts(1)[0], model=SERVED_NAME, salt=None)

    async def send() -> list[float]:
        async with open_async_client(url) as client:
            results = [await stream_request(client, GenerationRequest("chat", body, k=k)) for _ in range(8)]
        return [result.decode_tok_s for result in results if result.decode_tok_s is not None]

    return median(asyncio.run(send()))


@pytest.mark.parametrize(("share", "outcome"), [(0.5, "passed"), (2.0, "failed")])
def test_gate_passes_at_half_the_measured_rate_and_fails_at_twice_it(
    live: LiveServer, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, share: float, outcome: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    limit = decode_rate(live.url, live.k) * share
    pytester.makepyfile(
        f"""
from pytest_sparkperf import sparkperf

@sparkperf(k={live.k}, min_decode={limit}, prompt_tokens=64, output_tokens={TOKENS}, max_rounds=3)
def test_decode(sparkperf_result, sparkperf_client, sparkperf_server):
    assert not sparkperf_result.simulated
    assert sparkperf_result.server["version"].startswith("0.32.0")
    [model] = sparkperf_client.get("/v1/models").json()["data"]
    assert model["id"] == sparkperf_server.model == "{SERVED_NAME}"
"""
    )

    result = proven_run(pytester, "--sparkperf-url", f"{live.k}={live.url}")

    assert result.parseoutcomes() == {outcome: 1}
