"""Limits on what is read of a server once: its memory and the size of its KV cache."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.memory import GIB
from pytest_sparkperf.core.preflight import GpuApp
from pytest_sparkperf.core.report import verdict_lines
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.server_memory import ServerMemory, check_facts_of, fact_verdicts, held_on_gpus
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant

UNREAD = "this figure could not be read from the server: a missing figure is never judged"


def judged(result: Result, **limits: Any) -> list[str]:
    verdicts = tuple(fact_verdicts(parse_mark(limits), result))
    return verdict_lines(Result(verdicts=verdicts))


@pytest.mark.parametrize(
    ("memory_gib", "line"),
    [
        (69.5, "PASS max_memory_gib=70: 69.50 GiB"),
        (70.5, "FAIL max_memory_gib=70: 70.50 GiB"),
        (None, f"ERROR max_memory_gib=70: {UNREAD}"),
    ],
)
def test_memory_is_compared_as_it_was_read(memory_gib: float | None, line: str) -> None:
    assert judged(Result(memory_gib=memory_gib), max_memory_gib=70) == [line]


@pytest.mark.parametrize(
    ("engines", "line"),
    [
        ((343_699,), "PASS min_kv_cache_tokens=300000: 343,699"),
        ((981_504, 299_999), "FAIL min_kv_cache_tokens=300000: 299,999"),
        ((), f"ERROR min_kv_cache_tokens=300000: {UNREAD}"),
    ],
)
def test_the_smallest_engine_decides_about_the_kv_cache(engines: tuple[int, ...], line: str) -> None:
    assert judged(Result(server={"kv_cache_tokens": engines}), min_kv_cache_tokens=300_000) == [line]


def test_limits_that_are_sampled_are_left_to_others() -> None:
    assert judged(Result(), min_decode=100, max_error_rate=0.1) == []


def test_the_parts_are_told_where_the_log_has_both() -> None:
    facts = {"model_load_gib": 20.1, "available_kv_cache_gib": 4.0}

    assert str(ServerMemory.of(31 * GIB, facts)) == (
        "memory of the idle server 31.0 GiB: weights 20.1, KV cache 4.0, the rest 6.9"
    )
    assert str(ServerMemory.of(31 * GIB, {"model_load_gib": 20.1})) == (
        "memory of the idle server 31.0 GiB: weights 20.1"
    )
    assert str(ServerMemory.of(31 * GIB, {})) == "memory of the idle server 31.0 GiB"


def test_memory_on_gpus_is_the_sum_over_our_processes_and_unknown_where_one_is() -> None:
    apps = [GpuApp(1, "a", 5), GpuApp(2, "b", 7), GpuApp(3, "other", 11)]

    assert held_on_gpus(apps, {1, 2}) == 12
    assert held_on_gpus([*apps, GpuApp(4, "c")], {1, 4}) is None
    assert held_on_gpus(apps, {9}) is None


def check(target: Target, **limits: Any) -> None:
    check_facts_of(parse_mark(limits), make_variant(target, k=0))


def test_memory_is_limited_only_where_the_kv_cache_is_pinned() -> None:
    pins = FrozenMap({"kv-cache-memory-bytes": 4 << 30})
    check(Target("qwen36", "vllm", model="m", args=pins), max_memory_gib=70)
    check(Target("qwen36", "vllm", model="m"), min_kv_cache_tokens=1)
    with pytest.raises(ConfigError) as caught:
        check(Target("qwen36", "vllm", model="m"), max_memory_gib=70)

    assert str(caught.value) == (
        "max_memory_gib says nothing about target 'qwen36', whose server takes all the memory it may for its "
        "KV cache; pin that, with kv-cache-memory-bytes in its args, or leave it out"
    )


def test_memory_of_a_server_that_others_started_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        check(Target("rented", "attach", urls=((None, "http://h:1"),)), max_memory_gib=70)

    assert str(caught.value) == (
        "max_memory_gib needs a server that this run starts: what target 'rented' (launch: attach) took when "
        "it came up, nobody saw; leave it out, or start the server here"
    )
