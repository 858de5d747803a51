"""What a pass is checked against: the answers' own words about the cache, and the server's counters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.http import httpx, open_async_client
from pytest_sparkperf.adapters.server import attach_server, start_server
from pytest_sparkperf.core.budget import Budget
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.shared import COUNTED
from pytest_sparkperf.core.targets import Target, Traffic
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.bench import Bench
from pytest_sparkperf.experiment.counters import settled_scrape
from pytest_sparkperf.experiment.measure import Conditions, Measurement
from pytest_sparkperf.experiment.side import Side
from pytest_sparkperf.experiment.starter import Starter

STREAMS = Path(__file__).parents[1] / "data" / "streams"
FLAGS = ("--unpaced", "--jit-s", "0")
WARM = (*FLAGS, "--enable-prompt-tokens-details", "--fault", "warm_cache")
SHORT = Load(output_tokens=8)
SPEC = replace(parse_mark({"min_decode": 1, "budget_s": 0.01}), load=SHORT)


class Once(httpx.AsyncByteStream):
    """A body that arrives at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


class Pages(httpx.AsyncBaseTransport):
    """The way to a server, on which ``/metrics`` may be hidden or replaced, and answers as well."""

    def __init__(
        self, *, hidden: bool = False, texts: tuple[str, ...] = (), answer: bytes | None = None
    ) -> None:
        self.hidden = hidden
        self.answer = answer
        self.texts = list(texts)
        self._way = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            if self.hidden:
                return httpx.Response(404)
            if self.texts:
                return httpx.Response(200, text=self.texts.pop(0))
        if self.answer is not None and request.url.path == "/v1/chat/completions":
            return httpx.Response(200, stream=Once(self.answer))
        return await self._way.handle_async_request(request)

    async def aclose(self) -> None:
        await self._way.aclose()


def variant_at(url: str, traffic: Traffic = "exclusive", silence_timeout_s: float = 60.0) -> Variant:
    urls = ((None, url),)
    target = Target("rented", "attach", urls=urls, traffic=traffic, silence_timeout_s=silence_timeout_s)
    return make_variant(target)


def measure_on(url: str, conditions: Conditions, silence_timeout_s: float = 60.0) -> Result:
    async def run() -> Result:
        variant = variant_at(url, silence_timeout_s=silence_timeout_s)
        async with open_async_client(url) as client:
            side = Side(variant, attach_server(variant), client, SHORT, shipped_prompts(1))
            return await Measurement({SUBJECT: side}, SPEC, conditions).run()

    return asyncio.run(run())


def with_side(
    url: str, pages: Pages, what: Callable[[Side], Awaitable[None]], traffic: Traffic = "exclusive"
) -> None:
    async def run() -> None:
        variant = variant_at(url, traffic)
        async with httpx.AsyncClient(base_url=url, transport=pages) as client:
            await what(Side(variant, attach_server(variant), client, SHORT, shipped_prompts(1)))

    asyncio.run(run())


async def send(side: Side, index: int) -> str | None:
    await side.begin(index)
    await side.shoot(0)
    await side.end()
    return side.fault()


@pytest.mark.parametrize(
    ("traffic", "hidden"), [("exclusive", False), ("exclusive", True), ("shared", False), ("shared", True)]
)
def test_a_warm_cache_is_found_with_and_without_counters(
    simulator: StartSimulator, traffic: Traffic, hidden: bool
) -> None:
    async def check(side: Side) -> None:
        await send(side, 0)
        fault = await send(side, 1)
        cached = side.records[-1].cached_tokens
        assert cached > 0
        assert fault == (
            f"{cached} prompt tokens came from the prefix cache, which was to be cold: start the server with "
            "--no-enable-prefix-caching, or use a vLLM that knows cache_salt"
        )

    with_side(simulator(*WARM).url, Pages(hidden=hidden), check, traffic)


def test_counters_that_vanish_are_a_fault(simulator: StartSimulator) -> None:
    url, pages = simulator(*FLAGS).url, Pages()

    async def check(side: Side) -> None:
        assert await send(side, 0) is None
        pages.hidden = True
        assert await send(side, 1) == (
            f"{url}/metrics was there before and did not answer around this pass, so its tokens could not be "
            "checked: see whether the server still runs, and what stands between it and this client"
        )
        assert await send(side, 1) is not None
        assert side.notes() == ()

    with_side(url, pages, check)


def test_counters_that_never_were_are_a_note(simulator: StartSimulator) -> None:
    url = simulator(*FLAGS).url

    async def check(side: Side) -> None:
        assert side.notes() == ()
        assert await send(side, 0) is None
        [note] = side.notes()
        assert note == (
            f"tokens and prefix cache could not be checked against the server's counters: {url} shows no "
            "/metrics"
        )

    with_side(url, Pages(hidden=True), check)


@pytest.mark.slow
@pytest.mark.parametrize(("traffic", "hidden"), [("exclusive", True), ("shared", False)])
def test_answers_tell_their_acceptance_where_counters_cannot(
    simulator: StartSimulator, traffic: Traffic, hidden: bool
) -> None:
    answer = (STREAMS / "vllm-0.32-cpu" / "k3.per_request_metrics_chat.raw").read_bytes()
    url = simulator(*FLAGS, "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}').url

    async def check(side: Side) -> None:
        await send(side, 0)
        found = side.acceptance((0,))
        assert found is not None
        assert (found.source, found.drafts, found.accepted_tokens) == ("requests", 12, 29)
        assert not any("acceptance" in note for note in side.notes())

    with_side(url, Pages(hidden=hidden, answer=answer), check, traffic)


def test_acceptance_comes_from_the_log_where_there_are_no_counters(tmp_path: Path) -> None:
    options = FrozenMap({"jit-s": 0, "slowdown": 0.2, "stats-interval-s": 0.1})
    variant = make_variant(Target("own", "sim", args=options), k=3)
    server = start_server(variant, log_dir=tmp_path)

    async def run() -> None:
        load = Load(output_tokens=64)
        async with httpx.AsyncClient(base_url=server.url, transport=Pages(hidden=True)) as client:
            side = Side(variant, server, client, load, shipped_prompts(1))
            for index in range(3):
                assert await send(side, index) is None
        found = side.acceptance((0, 1, 2))
        assert found is not None
        assert (found.source, found.k) == ("log", 3)
        assert found.rate is not None
        assert 0.5 < found.rate < 1
        assert side.why_no_acceptance() == f"no acceptance: {server.url} shows no /metrics"
        assert side.notes()[-1] == (
            "acceptance is pooled from the SpecDecoding lines of the log, which do not begin and end with "
            f"the rounds, since {server.url} shows no /metrics"
        )

    try:
        asyncio.run(run())
    finally:
        server.stop()


def test_a_scrape_waits_until_nothing_runs() -> None:
    def page(running: int, tokens: int) -> str:
        return f"vllm:num_requests_running {running}\nvllm:generation_tokens_total {tokens}\n"

    pages = Pages(texts=(page(1, 5), page(1, 5), page(1, 5), page(0, 8), page(0, 8)))

    async def run() -> float | None:
        async with httpx.AsyncClient(base_url="http://127.0.0.1", transport=pages) as client:
            found = await settled_scrape(client)
        return None if found is None else found.total("vllm:generation_tokens_total")

    assert asyncio.run(run()) == 8
    assert pages.texts == []


def test_a_server_that_falls_silent_fails_the_gate_whatever_its_health(
    simulator: StartSimulator,
) -> None:
    result = measure_on(simulator(*FLAGS, "--fault", "hang_after=3").url, Conditions(1), 0.2)

    [verdict, errors] = result.verdicts
    assert (verdict.outcome, errors.outcome) == ("ERROR", "FAIL")
    assert verdict.reason == (
        "a request failed twice (timeout): The server stopped sending and the watchdog ended the request. "
        "Seen: no event for 0.2 s after 4 events (silence_timeout_s of the target); /health answers 200"
    )


def test_a_pass_that_never_ends_is_broken_off_when_the_budget_is_spent(simulator: StartSimulator) -> None:
    url = simulator(*FLAGS, "--fault", "hang_after=3").url

    result = measure_on(url, Conditions(1, last_pass_s=0.3))

    assert result.verdicts[0].outcome == "INCONCLUSIVE"
    assert result.verdicts[0].reason == (
        "the budget of 0.01 s was spent and a pass did not end within 0.3 s more: raise budget_s, ask for "
        "fewer output_tokens, or see what holds the server up"
    )


class FaultyMachine:
    """A watch that finds a fault in the first passes."""

    def __init__(self, faults: int) -> None:
        self.passes = 0
        self._faults = faults

    def begin(self) -> None:
        self.passes += 1

    def fault(self) -> str | None:
        return "the machine" if self.passes <= self._faults else None

    def notes(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    ("faults", "outcome", "reason"), [(1, "INCONCLUSIVE", Budget(0.01).spent()), (2, "ERROR", "the machine")]
)
def test_a_pass_that_the_machine_spoiled_is_sent_once_more(
    simulator: StartSimulator, faults: int, outcome: str, reason: str
) -> None:
    watch = FaultyMachine(faults)

    result = measure_on(simulator(*FLAGS).url, Conditions(1, watch=watch))

    assert (result.verdicts[0].outcome, result.verdicts[0].reason) == (outcome, reason)
    assert watch.passes == 2


def counters(count: int, ttft_s: float, tpot_s: float, waiting: int = 0) -> str:
    return f"""vllm:num_requests_waiting {waiting}
vllm:generation_tokens_total {count * 8}
vllm:e2e_request_latency_seconds_count {count}
vllm:e2e_request_latency_seconds_sum {count * 2.0}
vllm:time_to_first_token_seconds_count {count}
vllm:time_to_first_token_seconds_sum {ttft_s}
vllm:request_time_per_output_token_seconds_count {count}
vllm:request_time_per_output_token_seconds_sum {tpot_s}
"""


def test_a_shared_server_is_judged_by_the_growth_of_its_counters(simulator: StartSimulator) -> None:
    first, late, after = counters(5, 1.0, 0.1), counters(5, 1.0, 0.1), counters(7, 1.8, 0.14)
    pages = Pages(texts=(first, first, late, after, after))
    found: dict[str, float | None] = {}

    async def check(side: Side) -> None:
        assert await send(side, 0) is None
        found.update(side.records[-1].figures(0, "n_minus_1"))

    with_side(simulator(*FLAGS).url, pages, check, "shared")

    told = {name: round(value, 6) for name, value in found.items() if value is not None}
    assert told == {"ttft_ms": 400.0, "tpot_ms": 20.0, "decode_tok_s": 50.0, "e2el_ms": 2000.0}
    assert pages.texts == []


def test_nothing_is_sent_to_a_shared_server_while_requests_of_others_wait(simulator: StartSimulator) -> None:
    busy, free = counters(5, 1.0, 0.1, waiting=3), counters(5, 1.0, 0.1)
    pages = Pages(texts=(busy, busy, free, counters(6, 1.2, 0.12), free))

    async def check(side: Side) -> None:
        await side.begin(0)
        assert (await side.shoot(0)).fault is None

    with_side(simulator(*FLAGS).url, pages, check, "shared")

    assert len(pages.texts) == 1, "one at the begin, two before the request, one after it"


def test_a_shared_server_that_stays_busy_leaves_the_gate_open(simulator: StartSimulator) -> None:
    url = simulator(*FLAGS).url
    pages = Pages(texts=(counters(5, 1.0, 0.1, waiting=3),) * 9)

    async def run() -> Result:
        variant = variant_at(url, "shared", silence_timeout_s=0.1)
        async with httpx.AsyncClient(base_url=url, transport=pages) as client:
            side = Side(variant, attach_server(variant), client, SHORT, shipped_prompts(1))
            return await Measurement({SUBJECT: side}, SPEC, Conditions(1)).run()

    [verdict] = asyncio.run(run()).verdicts

    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason == (
        f"requests of others waited on {url} for 0.1 s (3 at the last look), and traffic: shared sends none "
        "beside them; measure when the server is less busy"
    )


def test_a_shared_server_without_counters_cannot_be_judged(simulator: StartSimulator) -> None:
    url = simulator(*FLAGS).url
    faults: list[str | None] = []

    async def check(side: Side) -> None:
        faults.append(await send(side, 0))

    with_side(url, Pages(hidden=True), check, "shared")

    [fault] = faults
    assert fault == (
        f"{url} shows no /metrics, and a server with traffic: shared is judged by its counters; let it show "
        "them, or keep others off it and say traffic: exclusive"
    )


def test_a_shared_server_is_measured_beside_the_traffic_of_others(simulator: StartSimulator) -> None:
    url = simulator("--jit-s", "0", "--slowdown", "0.1", "--fault", "foreign_traffic=5").url
    found: dict[str, float | None] = {}

    async def check(side: Side) -> None:
        assert await send(side, 0) is None
        found.update(side.records[-1].figures(0, "n_minus_1"))
        assert COUNTED in side.notes()

    with_side(url, Pages(), check, "shared")

    assert all((found[name] or 0) > 0 for name in ("decode_tok_s", "ttft_ms", "tpot_ms", "e2el_ms"))
    assert (found["output_tok_s"], found["prefill_tok_s"]) == (None, None)


def test_several_streams_on_a_shared_server_are_refused(simulator: StartSimulator, tmp_path: Path) -> None:
    variant = variant_at(simulator(*FLAGS).url, "shared")
    spec = replace(parse_mark({"min_decode": 1}), load=Load(concurrency=4))
    bench = Bench(expected=(), starter=Starter(lambda: tmp_path), root=tmp_path)
    try:
        with pytest.raises(ConfigError) as raised:
            bench.measure({SUBJECT: variant}, spec, gates=1)
    finally:
        bench.close()
    assert str(raised.value) == (
        "concurrency=4 cannot be measured on target 'rented', which says traffic: shared: requests of others "
        "would fill the batch too, and nothing would tell; measure concurrency=1 there, or keep others off "
        "it and say traffic: exclusive"
    )
