"""The keywords of a load: workloads by name, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import MarkError, parse_ab, parse_mark
from pytest_sparkperf.core.load import Load

WORKLOADS = {
    "balanced": FrozenMap({"dataset": "random", "prompt_tokens": 1000, "concurrency": 4}),
    "chat": FrozenMap({"dataset": "/data/s.json", "body": {"top_k": 20}}),
}


def fault_of(**keywords: Any) -> str:
    with pytest.raises(MarkError) as caught:
        parse_mark(keywords, WORKLOADS)
    return str(caught.value)


def test_a_workload_is_the_load_that_it_names() -> None:
    spec = parse_mark({"workload": "balanced", "k": 3, "min_decode": 10}, WORKLOADS)

    assert spec.load == Load(dataset="random", prompt_tokens=1000, concurrency=4)
    assert (spec.k, spec.limits[0].gate) == (3, "min_decode")


def test_both_sides_of_a_comparison_in_a_body_get_it() -> None:
    spec = parse_ab({"k": 0}, {"k": 3}, {"workload": "balanced"}, parse_mark({}), WORKLOADS)

    assert spec.load.concurrency == 4


def test_answers_are_as_long_as_a_file_says_unless_a_length_is_given() -> None:
    own = parse_mark({"workload": "chat"}, WORKLOADS).load
    fixed = parse_mark({"dataset": "/data/s.json", "output_tokens": 32}).load

    assert (own.own_lengths, own.output_tokens, own.body) == (True, 256, FrozenMap({"top_k": 20}))
    assert (fixed.own_lengths, fixed.output_tokens) == (False, 32)


def test_a_workload_and_words_of_a_load_do_not_go_together() -> None:
    assert fault_of(workload="balanced", concurrency=8, seed=1) == (
        "workload and concurrency, seed both describe the load; keep one or the other"
    )


def test_a_workload_that_is_not_there_is_named() -> None:
    assert fault_of(workload="balanced2") == (
        "workload 'balanced2' is not known; did you mean balanced? workloads are balanced, chat; describe it "
        "in sparkperf.yaml"
    )
    with pytest.raises(MarkError) as caught:
        parse_mark({"workload": "x"})
    assert str(caught.value) == (
        "workload 'x' is not known; there are no workloads; describe it in sparkperf.yaml"
    )


def test_limits_are_held_against_the_load_of_a_workload() -> None:
    assert fault_of(workload="balanced", min_acceptance_rate=0.5, k=3) == (
        "min_acceptance_rate says nothing about dataset='random', as no draft predicts random tokens as it "
        "does text; use the shipped prompts, or a dataset of real ones"
    )


def test_prompts_of_a_file_keep_their_length() -> None:
    assert fault_of(dataset="own.jsonl", prompt_tokens=100) == (
        "prompt_tokens does not go with a file, whose prompts have their own lengths; leave it out"
    )


def load_of(**keywords: Any) -> Load:
    return parse_mark(keywords).load


def test_requests_make_a_run_and_a_rate_an_open_one() -> None:
    closed, opened = load_of(requests=1000, concurrency=32), load_of(requests=1000, request_rate=2.5)
    capped = load_of(requests=1000, request_rate=2.5, concurrency=16, burstiness=0.5)

    assert (closed.is_run, closed.capped, closed.request_rate) == (True, True, None)
    assert (opened.request_rate, opened.capped, opened.concurrency) == (2.5, False, 256)
    assert (capped.concurrency, capped.capped, capped.burstiness) == (16, True, 0.5)


def test_all_at_once_is_a_burst_or_with_a_cap_a_closed_loop() -> None:
    burst = load_of(requests=64, request_rate=float("inf"))
    capped = load_of(requests=640, request_rate=float("inf"), concurrency=64)

    assert burst == Load(concurrency=64)
    assert capped == Load(concurrency=64, requests=640)


def test_a_run_is_warmed_up_by_bursts() -> None:
    assert load_of(requests=1000, concurrency=32).burst == Load(concurrency=32)
    assert load_of(requests=1000, request_rate=2.5).burst == Load(concurrency=8, capped=False)
    assert Load(concurrency=4).burst == Load(concurrency=4)
