"""The lines of figures that vLLM logs every ten seconds while it works."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_sparkperf.sim.counters import Counters


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment, as far as the log speaks of them."""

    at_s: float
    prompt_tokens: int
    generation_tokens: int
    drafts: int
    accepted_per_position: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The gauges of the same moment."""

    running: int
    waiting: int
    kv_usage_ratio: float
    prefix_hit_ratio: float


def take_snapshot(counters: Counters, at_s: float) -> Snapshot:
    """Return the counters as they stand."""
    return Snapshot(
        at_s=at_s,
        prompt_tokens=counters.prompt_tokens,
        generation_tokens=counters.generation_tokens,
        drafts=counters.drafts,
        accepted_per_position=tuple(counters.accepted_per_position),
    )


def stats_lines(before: Snapshot, after: Snapshot, state: State) -> list[tuple[str, str]]:
    """Return source and text of the lines for the time between two snapshots; none where nothing happened."""
    seconds = after.at_s - before.at_s
    prompt = after.prompt_tokens - before.prompt_tokens
    generated = after.generation_tokens - before.generation_tokens
    if not prompt and not generated and not state.running:
        return []
    engine = (
        f"Engine 000: Avg prompt throughput: {prompt / seconds:.1f} tokens/s, "
        f"Avg generation throughput: {generated / seconds:.1f} tokens/s, Running: {state.running} reqs, "
        f"Waiting: {state.waiting} reqs, GPU KV cache usage: {state.kv_usage_ratio:.1%}, "
        f"Prefix cache hit rate: {state.prefix_hit_ratio:.1%}"
    )
    return [("loggers.py", engine), *_drafting_line(before, after, seconds)]


def _drafting_line(before: Snapshot, after: Snapshot, seconds: float) -> list[tuple[str, str]]:
    drafts = after.drafts - before.drafts
    if not drafts:
        return []
    pairs = zip(after.accepted_per_position, before.accepted_per_position, strict=True)
    by_position = [now - then for now, then in pairs]
    accepted, drafted = sum(by_position), drafts * len(by_position)
    rates = ", ".join(f"{count / drafts:.3f}" for count in by_position)
    text = (
        f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
        f"Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {accepted / drafted:.1%}"
    )
    return [("metrics.py", text)]
