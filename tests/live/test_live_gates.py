"""Gates on real vLLM: every k measured, tokens and drafts as the server counts them, both verdicts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from vllm_serve import SERVED_NAME, LiveServer, LiveServers

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import Server, attach_server
from pytest_sparkperf.core.acceptance import acceptance_between, pool_intervals
from pytest_sparkperf.core.exposition import Scrape, difference
from pytest_sparkperf.core.gate import GateSpec, parse_mark
from pytest_sparkperf.core.heat import NO_HEAT
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.serverlog import SpecDecodingInterval, spec_decoding_intervals
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.core.workload import fit_prompts
from pytest_sparkperf.experiment.counters import settled_scrape
from pytest_sparkperf.experiment.measure import Conditions, Measurement
from pytest_sparkperf.experiment.side import Side
from pytest_sparkperf.experiment.tokens import token_counter

SMALL = {"prompt_tokens": 64, "output_tokens": 32, "max_rounds": 3}
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
    with token_counter(server, spec.load) as count:
        prompts = fit_prompts(shipped_prompts(1), 64, count, shipped_prompts(8))
    seen = len(spec_decoding_intervals(live.log_path.read_text()))

    result, side, before, after = asyncio.run(
        measure(server, lambda client: Side(variant, server, client, spec.load, prompts), spec)
    )

    sent = [request for burst in side.everything() for request in burst.requests]
    assert server.k == live.k
    assert {(request.valid, request.output_tokens) for request in sent} == {(True, 32)}
    assert all(request.token_ids is not None and len(request.token_ids) == 32 for request in sent)
    assert difference(before, after).total("vllm:generation_tokens_total") == 32 * len(sent)
    assert result.tpot_rule == "minus_first_event"
    assert result.decode_tok_s is not None
    counted = acceptance_between(before, after)
    if live.k == 0:
        assert counted is None
        assert result.acceptance_rate is None
        return
    assert counted is not None
    assert counted.k == live.k
    logged = pool_intervals(_later_intervals(live.log_path, seen, counted.draft_tokens))
    assert logged is not None
    assert (logged.accepted_tokens, logged.draft_tokens) == (counted.accepted_tokens, counted.draft_tokens)
    assert result.acceptance_rate is not None
    assert 0 < result.acceptance_rate < 1
    assert result.acceptance_length is not None
    assert result.acceptance_length == pytest.approx(1 + live.k * result.acceptance_rate, rel=0.1)


def _later_intervals(log: Path, seen: int, draft_tokens: float) -> Sequence[SpecDecodingInterval]:
    """Wait until the log's lines behind the first ``seen`` account for all drafts."""
    deadline = time.monotonic() + LOG_WAIT_S
    while True:
        later = spec_decoding_intervals(log.read_text())[seen:]
        pooled = pool_intervals(later)
        if (pooled is not None and pooled.draft_tokens >= draft_tokens) or time.monotonic() > deadline:
            return later
        time.sleep(0.2)


def test_gate_passes_at_half_the_measured_rate_and_fails_at_twice_it(
    live: LiveServer, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(
        f"""
import pytest
from pytest_sparkperf import sparkperf

RATE = {{}}
pytestmark = sparkperf(k={live.k}, prompt_tokens=64, output_tokens=32, max_rounds=3)

def test_measure(sparkperf_result):
    RATE["decode"] = sparkperf_result.decode_tok_s
    assert sparkperf_result.server["version"].startswith("0.32.0")
    assert not sparkperf_result.simulated

def test_half_and_twice(sparkperf_measure):
    words = dict(k={live.k}, prompt_tokens=64, output_tokens=32)
    [half] = sparkperf_measure(**words, min_decode=RATE["decode"] / 2).verdicts
    [twice] = sparkperf_measure(**words, min_decode=RATE["decode"] * 2).verdicts
    assert (half.outcome, twice.outcome) == ("PASS", "FAIL")
    assert half.low < half.estimate < half.high < twice.limit

def test_client(sparkperf_client, sparkperf_server):
    [model] = sparkperf_client.get("/v1/models").json()["data"]
    assert model["id"] == sparkperf_server.model == "{SERVED_NAME}"
"""
    )

    result = pytester.runpytest_subprocess(
        "--sparkperf", "--sparkperf-url", f"{live.k}={live.url}", "-p", "no:cacheprovider"
    )

    result.assert_outcomes(passed=3)
