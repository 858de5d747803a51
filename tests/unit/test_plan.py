from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.plan import CollectedGate, Rates, as_document, plan_lines, plan_suite
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant

TARGET = Target("qwen36", "vllm", model="m")
RATES = Rates(decode_tok_s=64.0, prefill_tok_s=1000.0, start_s=120.0)  # 1 s + 4 s for a request


def gate(test: str, **keywords: object) -> CollectedGate:
    spec = parse_mark(keywords)
    variants: dict[Arm, Variant] = {"B": make_variant(TARGET, k=spec.k)}
    if spec.against is not None:
        variants["A"] = make_variant(TARGET, k=spec.reference().k)
    return CollectedGate(test, spec, variants)


def test_a_suite_is_planned_in_words() -> None:
    plan = plan_suite(
        [
            gate("test_a.py::test_one", k=3, min_decode=100),
            gate("test_a.py::test_two", k=3, against={"k": 0}, min_speedup=1.25, max_rounds=3),
            gate("test_a.py::test_bare", k=3),
        ],
        rates=RATES,
    )

    assert plan_lines(plan) == [
        "test_a.py::test_one",
        "  qwen36 k=3; 3 to 12 rounds x 4 requests, about 1.3 to 4.3 min",
        "  min_decode=100: can only be judged outside 98.55 to 101.4 tok/s",
        "test_a.py::test_two",
        "  qwen36 k=3 against qwen36 k=0; 3 rounds x 8 requests, about 2.7 min",
        "  min_speedup=1.25: can only be judged outside 1.195 to 1.302",
        "test_a.py::test_bare",
        "  qwen36 k=3; 3 to 12 rounds x 4 requests, about 1.3 to 4.3 min",
        "  no limits: measures and reports",
        "3 gates, 2 starts of servers, about 9.3 to 15 min with starts, without soak",
        (
            "minutes at 64 tok/s of one stream, 1000 tok/s of prefill, 120 s a start; forecasts from assumed "
            "constants"
        ),
    ]


def test_more_limits_in_a_session_make_each_fail_harder_to_prove() -> None:
    one = plan_suite([gate("a", min_decode=100)]).gates[0].limits[0]
    many = plan_suite([gate(str(number), min_decode=100) for number in range(20)]).gates[0].limits[0]

    assert one.low is not None
    assert many.low is not None
    assert many.low < one.low
    assert many.high == one.high


def test_measured_constants_change_what_an_ab_can_decide() -> None:
    suite = [gate("a", k=3, against={"k": 0}, max_slowdown=0.03)]
    calm = plan_suite(suite, constants=replace(ASSUMED, launch_sd=0.004, measured=True))

    assert calm.gates[0].limits[0].forecast != plan_suite(suite).gates[0].limits[0].forecast
    assert calm.constants == "measured"
    assert calm.gates[0].limits[0].limit == pytest.approx(0.03)


def test_a_percentile_says_how_many_requests_it_needs() -> None:
    (limit,) = plan_suite([gate("a", concurrency=8, max_ttft_p90_ms=500)]).gates[0].limits

    assert limit.forecast == "needs 59 requests to be proven"


def test_a_time_to_the_first_token_is_forecast_with_its_own_spread() -> None:
    (limit,) = plan_suite([gate("a", max_ttft_ms=500)]).gates[0].limits

    assert limit.forecast == "can only be judged outside 460.8 to 542.6 ms"


def test_larger_bursts_take_longer_a_stream_but_not_in_proportion() -> None:
    one, eight = (plan_suite([gate("a", concurrency=n)], rates=RATES).gates[0] for n in (1, 8))

    assert (one.requests_per_round, eight.requests_per_round) == (4, 16)
    assert 1.0 < eight.minutes[1] / one.minutes[1] < 4.0


def test_a_budget_in_seconds_is_the_most_a_gate_takes() -> None:
    (planned,) = plan_suite([gate("a", budget_s=60)], rates=RATES).gates

    assert planned.minutes[1] == 1.0


def test_a_run_takes_as_long_as_its_requests_do() -> None:
    load = {"requests": 640, "output_tokens": 100}
    closed = gate("closed", **load, concurrency=32, min_output_throughput=100)
    opened = gate("open", **load, request_rate=2, min_output_throughput=100)
    cut = gate("cut", **load, request_rate=0.5, budget_s=60)

    found = {one.test: one for one in plan_suite([closed, opened, cut], rates=RATES).gates}

    assert found["closed"].rounds == (12, 12)
    assert found["closed"].requests_per_round == 48
    assert found["closed"].limits[0].gate == "min_output_throughput"
    assert 320 / 60 < found["open"].minutes[0] < 400 / 60
    assert found["cut"].minutes == (1, 1)


def test_attached_servers_are_not_started() -> None:
    spec = parse_mark({"min_decode": 100})
    variant = make_variant(Target("rented", "attach", urls=((0, "http://x:8000"),)))

    assert plan_suite([CollectedGate("a", spec, {"B": variant})]).starts == 0


def test_gates_of_one_server_share_its_start() -> None:
    suite = [gate("a", k=0), gate("b", k=0), gate("c", k=3), gate("d", k=0)]

    assert plan_suite(suite, max_resident=2).starts == 2
    assert plan_suite(suite, max_resident=1).starts == 3


def test_simulated_servers_start_at_once() -> None:
    spec = parse_mark({})
    found = plan_suite([CollectedGate("a", spec, {"B": make_variant(Target("sim", "sim"))})], rates=RATES)

    assert found.minutes[0] - found.gates[0].minutes[0] < 0.1


def test_a_plan_can_be_written_as_json() -> None:
    document = json.loads(json.dumps(as_document(plan_suite([gate("a", min_decode=100)]))))

    assert document["gates"][0]["limits"][0]["gate"] == "min_decode"
    assert document["starts"] == 1
