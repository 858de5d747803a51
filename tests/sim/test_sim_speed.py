"""The simulator's speed: what its records say, what a client sees, and how rates follow from the load."""

from __future__ import annotations

from statistics import fmean

import pytest
from simulator_process import SimProcess, StartSimulator
from stream_reader import Stream, chat_body, emissions, stream, stream_many

from pytest_sparkperf.sim.cost import step_cost_s
from pytest_sparkperf.sim.profiles import DEFAULT_PROFILE, PROFILES

pytestmark = pytest.mark.slow

QUIET = ("--jit-s", "0", "--noise", "0")
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')


@pytest.fixture(scope="module")
def off(simulator: StartSimulator) -> SimProcess:
    return simulator(*QUIET)


@pytest.fixture(scope="module")
def mtp(simulator: StartSimulator) -> SimProcess:
    return simulator(*QUIET, *MTP)


def bodies(count: int, tokens: int) -> list[dict[str, object]]:
    return [chat_body(f"Stream {number} of a burst.", max_tokens=tokens) for number in range(count)]


def output_tok_s(streams: list[Stream]) -> float:
    tokens = sum(each.usage["completion_tokens"] for each in streams)
    first_s = min(each.sent_s for each in streams)
    return float(tokens / (max(each.token_times_s[-1] for each in streams) - first_s))


@pytest.mark.parametrize("streams", [1, 8])
@pytest.mark.parametrize("k", [0, 3])
def test_recorded_emissions_agree_with_the_clients_clock(
    off: SimProcess, mtp: SimProcess, streams: int, k: int
) -> None:
    server = mtp if k else off
    got = stream_many(server.url, bodies(streams, tokens=96))
    records = {record["request_id"]: record for record in emissions(server.url)}

    for each in got:
        record = records[each.chunks[0]["id"].removeprefix("chatcmpl-")]
        assert record["tokens"][0] == 1
        assert record["output_tokens"] == each.usage["completion_tokens"] == 96
        assert len(record["emitted_s"]) == len(each.token_times_s)
        assert record["arrival_s"] >= each.sent_s
        assert all(
            seen_s > sent_s for seen_s, sent_s in zip(each.token_times_s, record["emitted_s"], strict=True)
        )
        true_rate = 95 / (record["last_s"] - record["first_s"])
        assert each.decode_tok_s == pytest.approx(true_rate, rel=0.01)


@pytest.mark.parametrize("streams", [1, 8])
def test_lateness_of_the_process_does_not_add_up(off: SimProcess, streams: int) -> None:
    got = stream_many(off.url, bodies(streams, tokens=96))
    records = {record["request_id"]: record for record in emissions(off.url)}
    last = records[max(got, key=lambda each: each.token_times_s[0]).chunks[0]["id"].removeprefix("chatcmpl-")]

    # What 90 steps cost by the profile's numbers, counted from when the last stream has begun.
    context = last["prompt_tokens"]
    profile = PROFILES[DEFAULT_PROFILE]
    planned_s = sum(step_cost_s(profile, [context + step] * streams, 0) for step in range(1, 91))
    assert last["emitted_s"][90] - last["emitted_s"][0] == pytest.approx(planned_s, rel=0.02)


def test_drafts_pay(off: SimProcess, mtp: SimProcess) -> None:
    prompts = bodies(3, tokens=48)
    slow, fast = (fmean(stream(server.url, body).decode_tok_s for body in prompts) for server in (off, mtp))

    assert 1.25 < fast / slow < 1.9


def test_a_full_batch_gives_more_in_all_and_less_to_each(off: SimProcess) -> None:
    alone = stream(off.url, chat_body(max_tokens=32))
    crowd = stream_many(off.url, bodies(8, tokens=32))

    assert output_tok_s(crowd) > 2 * output_tok_s([alone])
    assert fmean(each.decode_tok_s for each in crowd) < 0.7 * alone.decode_tok_s


def test_deeper_context_decodes_slower_and_starts_later(simulator: StartSimulator) -> None:
    server = simulator(*QUIET, "--slowdown", "0.2")
    shallow = stream(server.url, chat_body("word " * 100, max_tokens=96))
    deep = stream(server.url, chat_body("word " * 50_000, max_tokens=96))

    assert deep.usage["prompt_tokens"] > 50_000
    assert deep.decode_tok_s < 0.9 * shallow.decode_tok_s
    assert deep.token_times_s[0] - deep.sent_s > 10 * (shallow.token_times_s[0] - shallow.sent_s)


def test_slowdown_halves_the_rate(off: SimProcess, simulator: StartSimulator) -> None:
    slow = simulator(*QUIET, "--slowdown", "2")
    ratio = stream(slow.url, chat_body()).decode_tok_s / stream(off.url, chat_body()).decode_tok_s

    assert ratio == pytest.approx(0.5, rel=0.05)


def test_the_first_request_pays_for_compilation_and_the_log_says_so(simulator: StartSimulator) -> None:
    server = simulator("--jit-s", "0.3", "--noise", "0", fresh=True)
    first, second = (stream(server.url, chat_body(max_tokens=4)) for _ in range(2))

    assert server.log().count("Triton kernel JIT compilation during inference: ") == 2
    paid_s = (first.token_times_s[-1] - first.sent_s) - (second.token_times_s[-1] - second.sent_s)
    assert paid_s == pytest.approx(0.6, abs=0.1)
