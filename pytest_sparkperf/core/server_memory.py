"""What a running server holds of the machine's memory, and limits on what it says of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.gate import UNSAMPLED, GateSpec
from pytest_sparkperf.core.judge import judge_fact
from pytest_sparkperf.core.memory import GIB
from pytest_sparkperf.core.preflight import GpuApp
from pytest_sparkperf.core.residents import is_pinned, takes_room
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.core.variant import Variant


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """Memory of an idle, warm server in GiB; its parts are None where the log does not tell."""

    total_gib: float
    weights_gib: float | None = None
    kv_cache_gib: float | None = None

    @classmethod
    def of(cls, held: int, facts: Mapping[str, Any]) -> ServerMemory:
        """Return what a server holds (bytes), with the parts that its log tells of."""
        weights, cache = facts.get("model_load_gib"), facts.get("available_kv_cache_gib")
        return cls(held / GIB, weights, cache)

    def __str__(self) -> str:
        known = {"weights": self.weights_gib, "KV cache": self.kv_cache_gib}
        parts = [f"{name} {value:.1f}" for name, value in known.items() if value is not None]
        if len(parts) == len(known):
            rest = self.total_gib - sum(value for value in known.values() if value is not None)
            parts.append(f"the rest {rest:.1f}")
        return f"memory of the idle server {self.total_gib:.1f} GiB" + (
            f": {', '.join(parts)}" if parts else ""
        )


def held_on_gpus(apps: Sequence[GpuApp], own: Collection[int]) -> int | None:
    """Return what processes of ours hold on the GPUs (bytes); None where a driver does not tell of one."""
    sizes = [app.memory for app in apps if app.pid in own]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def check_facts_of(spec: GateSpec, variant: Variant) -> None:
    """Raise ConfigError for a limit on memory that says nothing about the server."""
    if not any(limit.metric == "memory_gib" for limit in spec.limits):
        return
    if not takes_room(variant):
        raise ConfigError(
            f"max_memory_gib needs a server that this run starts: what target {variant.target!r} (launch: "
            f"attach) took when it came up, nobody saw; leave it out, or start the server here"
        )
    if not is_pinned(variant):
        raise ConfigError(
            f"max_memory_gib says nothing about target {variant.target!r}, whose server takes all the memory "
            f"it may for its KV cache; pin that, with kv-cache-memory-bytes in its args, or leave it out"
        )


def fact_verdicts(spec: GateSpec, result: Result) -> Iterator[Verdict]:
    """Yield the verdicts on what is read once: memory, and the KV cache of the smallest engine in tokens."""
    known = {"memory_gib": result.memory_gib, "kv_cache_tokens": kv_cache_tokens(result)}
    if spec.max_kv_loss is not None:
        yield _kv_verdict(spec.max_kv_loss, result)
    for limit in spec.limits:
        if limit.metric in UNSAMPLED and limit.metric in known:
            value = known[limit.metric]
            yield judge_fact(limit.gate, value, limit.bound, higher_is_better=limit.is_floor)


def kv_cache_tokens(result: Result) -> int | None:
    """Return the KV cache of the smallest engine, in tokens; None where the server does not tell."""
    engines: Sequence[int] = result.server.get("kv_cache_tokens") or ()
    return min(engines, default=None)


def kv_loss(result: Result) -> float | None:
    """Return the share of A's KV cache, in tokens, that B gives up; negative where B has more."""
    before = None if result.against is None else kv_cache_tokens(result.against)
    after = kv_cache_tokens(result)
    return None if not before or after is None else 1 - after / before


def _kv_verdict(limit: float, result: Result) -> Verdict:
    verdict = judge_fact("max_kv_loss", kv_loss(result), limit, higher_is_better=False)
    if verdict.estimate is None or result.against is None:
        return verdict
    sizes = f"KV cache {kv_cache_tokens(result.against):,} -> {kv_cache_tokens(result):,} tokens"
    return replace(verdict, reason=sizes)
