from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.residents import residents
from pytest_sparkperf.core.targets import Commands, Target
from pytest_sparkperf.core.variant import Variant, make_variant

PINS = FrozenMap({"gpu-memory-utilization": 0.35, "kv-cache-memory-bytes": 4 << 30})


def pair(target: Target) -> dict[str, Variant]:
    return {"A": make_variant(target, k=0), "B": make_variant(target, k=3)}


def vllm(**keys: Any) -> Target:
    return Target("qwen36", "vllm", model="m", **keys)


def refused(target: Target, *, max_resident: int = 2) -> str:
    with pytest.raises(ConfigError) as caught:
        residents(pair(target), max_resident=max_resident)
    return str(caught.value)


def test_the_two_of_a_comparison_run_with_the_options_for_residents() -> None:
    found = residents(pair(vllm(resident=PINS)), max_resident=2)

    assert [one.args["kv-cache-memory-bytes"] for one in found.values()] == [4 << 30, 4 << 30]
    assert found["A"] != pair(vllm(resident=PINS))["A"]


def test_without_options_for_residents_they_are_the_servers_of_gates_alone() -> None:
    target = vllm(args=FrozenMap({"kv-cache-memory-bytes": 1 << 30}))

    assert residents(pair(target), max_resident=2) == pair(target)


@pytest.mark.parametrize(
    "target",
    [
        Target("s", "sim"),
        Target("a", "attach", urls=((0, "http://h:1"), (3, "http://h:2"))),
        vllm(env=FrozenMap({"VLLM_CPU_KVCACHE_SPACE": "1"})),
        vllm(resident=FrozenMap({"num-gpu-blocks-override": 512})),
    ],
)
def test_what_has_room_twice_is_not_refused(target: Target) -> None:
    assert len(residents(pair(target), max_resident=2)) == 2


def test_one_server_compared_with_itself_needs_no_room_for_two() -> None:
    same = {"A": make_variant(vllm(), k=0), "B": make_variant(vllm(), k=0)}

    assert residents(same, max_resident=1) == same


def test_a_comparison_without_pinned_memory_is_refused_with_the_sentence_to_add() -> None:
    assert refused(vllm()) == (
        "target 'qwen36' does not pin its KV memory, and a comparison needs two of its servers at once, "
        "where the first would leave nothing for the second; add `resident: {gpu-memory-utilization: 0.35, "
        "kv-cache-memory-bytes: 4294967296}` to it, with figures that fit twice into this machine"
    )


def test_a_command_must_be_able_to_take_the_options() -> None:
    assert refused(Target("own", "command", commands=Commands(("serve", "{port}", "{k}")))) == (
        "target 'own' does not pin its KV memory, and a comparison needs two of its servers at once; let "
        "start: take {args}, and add `resident: {gpu-memory-utilization: 0.35, kv-cache-memory-bytes: "
        "4294967296}` to the target, with figures that fit twice into this machine"
    )


def test_one_resident_leaves_no_room_for_a_comparison() -> None:
    assert refused(vllm(resident=PINS), max_resident=1) == (
        "max_resident: 1 leaves no room for the two servers of a comparison; raise it to 2, or attach to "
        "servers that already run"
    )
