"""Runs of many requests on simulators: all sent and counted, cut when time is up, held to their schedule."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from gate_runner import run_gate
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import attach_server
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.gate import GateSpec, parse_mark
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.experiment.long_run import LongRun, Shooter
from pytest_sparkperf.experiment.measure import Conditions
from pytest_sparkperf.experiment.prompts import prompts_for
from pytest_sparkperf.experiment.side import Side

FLAGS = ("--unpaced", "--jit-s", "0")


async def on_side(url: str, spec: GateSpec, fault: str | None = None) -> tuple[Result, Side]:
    """Measure a run without its warm-up, on a server whose ``fault`` is switched on first."""
    variant = make_variant(Target("rented", "attach", urls=((None, url),)))
    server = attach_server(variant)
    async with open_async_client(url) as client:
        side = Side(variant, server, client, spec.load, prompts_for(server, spec.load))
        if fault is not None:
            await client.post("/sparkperf_sim/faults", json={"name": fault, "value": True})
        return await LongRun(side, spec, Conditions(1)).measure(), side


def measure(url: str, fault: str | None = None, **keywords: object) -> tuple[Result, Side]:
    spec = parse_mark({"output_tokens": 8, "prompt_tokens": 40, **keywords})
    return asyncio.run(on_side(url, spec, fault))


def test_a_closed_loop_sends_every_request_and_loses_none(simulator: StartSimulator) -> None:
    result, side = measure(
        simulator(*FLAGS).url, concurrency=4, requests=40, min_output_throughput=1, max_error_rate=0
    )

    [burst] = side.everything()
    assert len(burst.requests) == 40
    assert {(one.valid, one.output_tokens) for one in burst.requests} == {(True, 8)}
    assert len({one.prompt_name for one in burst.requests}) == 40
    assert {verdict.gate: verdict.outcome for verdict in result.verdicts} == {
        "min_output_throughput": "PASS",
        "max_error_rate": "PASS",
    }
    assert result.rounds >= 3
    assert result.output_tok_s is not None
    assert result.requests_per_s == pytest.approx(result.output_tok_s / 8, rel=0.1)
    assert result.notes[0].startswith("40 of 40 requests sent in ")


def test_an_open_loop_keeps_its_schedule_and_counts_goodput(simulator: StartSimulator) -> None:
    result, side = measure(
        simulator(*FLAGS).url,
        request_rate=15,
        requests=15,
        min_goodput=1,
        slo={"e2el_ms": 60_000},
        min_request_throughput=5,
    )

    [burst] = side.everything()
    written = sorted(one.written_s for one in burst.requests if one.written_s is not None)
    assert len(written) == 15
    # The rate is exact over the whole; a single request may be late on a busy machine.
    assert written[-1] - written[0] == pytest.approx(14 / 15, rel=0.3)
    assert {verdict.outcome for verdict in result.verdicts} == {"PASS"}
    assert result.goodput_rps is not None
    assert result.requests_per_s is not None
    # Every request counts; the one is a mean of segments, the other their geometric mean.
    assert result.goodput_rps >= 0.999 * result.requests_per_s
    assert result.notes[-1].startswith("sent within ")


def shoot(url: str, load: Load) -> tuple[Shooter, float]:
    """Send a load; return its shooter, and a moment (s) before its schedule began."""

    async def run() -> tuple[Shooter, float]:
        variant = make_variant(Target("rented", "attach", urls=((None, url),)))
        server = attach_server(variant)
        async with open_async_client(url) as client:
            shooter = Shooter(Side(variant, server, client, load, prompts_for(server, load)), load)
            before_s = shooter.side.clock()
            await shooter.send()
        return shooter, before_s

    return asyncio.run(run())


def open_load(**keywords: object) -> Load:
    return parse_mark({"output_tokens": 8, "prompt_tokens": 40, **keywords}).load


def test_a_cap_holds_in_an_open_loop(simulator: StartSimulator) -> None:
    load = open_load(request_rate=1000, requests=30, concurrency=3)

    shooter, _ = shoot(simulator(*FLAGS).url, load)

    assert (len(shooter.recordings), shooter.most_in_flight, shooter.held) == (30, 3, 0)


def test_no_request_is_sent_before_it_is_due_also_where_a_cap_holds_it_back(
    simulator: StartSimulator,
) -> None:
    load = open_load(request_rate=60, requests=30, burstiness=1000.0, concurrency=1)

    shooter, before_s = shoot(simulator(*FLAGS).url, load)

    written_s = sorted(recording.written_s for _, recording in shooter.recordings)
    due_s = [before_s + after_s for after_s in shooter.schedule()]
    assert all(written >= due for written, due in zip(written_s, due_s, strict=True))


def test_an_open_loop_that_meets_the_clients_own_cap_is_an_error(simulator: StartSimulator) -> None:
    load = replace(open_load(request_rate=1000, requests=30), concurrency=3)
    spec = replace(parse_mark({"min_request_throughput": 1}), load=load)

    with pytest.raises(MeasurementError) as caught:
        asyncio.run(on_side(simulator(*FLAGS).url, spec))

    assert re.fullmatch(
        r"\d+ of 30 requests waited for one of the 3 streams that one client holds: the server falls behind "
        r"1000 requests a second; lower request_rate, or make a cap part of the load \(concurrency=3\)",
        str(caught.value),
    )


@pytest.mark.slow
def test_a_run_is_cut_when_its_budget_is_spent(simulator: StartSimulator) -> None:
    result, side = measure(
        simulator(*FLAGS).url, concurrency=2, requests=100_000, budget_s=0.5, min_output_throughput=1
    )

    sent = len(side.everything()[0].requests)
    assert 2 <= sent < 100_000
    assert ", cut when budget_s was spent" in result.notes[0]
    assert result.notes[0].startswith(f"{sent} of 100000 requests sent in ")


def test_a_server_that_fails_many_requests_is_an_error(simulator: StartSimulator) -> None:
    url = simulator(*FLAGS, fresh=True).url

    with pytest.raises(MeasurementError) as caught:
        measure(url, "http_503", concurrency=2, requests=20)

    assert str(caught.value) == (
        "20 of 20 requests of the run were not valid, the first of them http_error: The server answered with "
        "an HTTP error of its own (5xx or 429)."
    )


@pytest.mark.slow
def test_a_gate_warms_up_and_says_its_queue(simulator: StartSimulator, tmp_path: Path) -> None:
    url = simulator("--slowdown", "0.2", "--jit-s", "0", "--max-num-seqs", "2").url

    result = run_gate(
        tmp_path,
        url,
        output_tokens=200,
        concurrency=4,
        requests=40,
        queueing=True,
        min_output_throughput=1,
        max_ttft_p50_ms=60_000,
    )

    assert {verdict.outcome for verdict in result.verdicts} == {"PASS"}
    assert (
        "queueing: 4 requests at once are more than the 2 that the server runs (max-num-seqs), so TTFT, E2EL "
        "and requests per second measure its queue"
    ) in result.notes
