"""What two scrapes of ``/metrics`` say about the time between them: acceptance, tokens, prefix cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_sparkperf.core.acceptance import (
    ESTIMATOR,
    NOT_SPECULATING,
    NOTHING_DRAFTED,
    Acceptance,
    acceptance_between,
    acceptance_since_start,
    why_no_acceptance,
)
from pytest_sparkperf.core.cachefacts import CACHE_HITS
from pytest_sparkperf.core.exposition import Delta, Scrape, difference

_COUNTERS = {
    "generation_tokens": "vllm:generation_tokens_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "prefix_cache_hits": CACHE_HITS,
    "prefix_cache_queries": "vllm:prefix_cache_queries_total",
    "preemptions": "vllm:num_preemptions_total",
}
# Facts about the server rather than faults of the files.
_FINE = (None, NOT_SPECULATING, NOTHING_DRAFTED)


def metrics_facts(before: Scrape | None, after: Scrape) -> dict[str, Any]:
    """Return the facts by name, ready for JSON; without ``before`` they count from the server's start.

    None is a figure that is not known; ``reason`` then says why there is no acceptance.
    """
    found = acceptance_since_start(after) if before is None else acceptance_between(before, after)
    source: Scrape | Delta = after if before is None else difference(before, after)
    facts: dict[str, Any] = {
        "since": "start" if before is None else "before",
        "estimator": ESTIMATOR,
        **_acceptance(found),
        "reason": why_no_acceptance(before, after),
    }
    for name, counter in _COUNTERS.items():
        total = source.total(counter)
        facts[name] = None if total is None else int(total)
    hits, queries = facts["prefix_cache_hits"], facts["prefix_cache_queries"]
    facts["prefix_cache_hit_rate"] = None if hits is None or not queries else hits / queries
    facts["malformed_lines"] = after.malformed + (before.malformed if before else 0)
    return facts


def metrics_fault(facts: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the scrapes or with what they show; None where nothing is."""
    if facts["reason"] not in _FINE:
        return str(facts["reason"])
    if facts["draft_tokens"] and not facts["accepted_tokens"]:
        drafted = facts["draft_tokens"]
        return f"none of {drafted} drafted tokens was accepted: the draft is broken or not this model's"
    return None


def metrics_lines(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the facts as lines of text, without those that are not known."""
    lines = [f"{name}: {_shown(value)}" for name, value in facts.items() if value is not None]
    return tuple(line for line in lines if not line.startswith("malformed_lines: 0"))


def _acceptance(found: Acceptance | None) -> dict[str, Any]:
    positions = found.per_position if found else None
    return {
        "acceptance_rate": found.rate if found else None,
        "acceptance_length": found.length if found else None,
        "acceptance_per_position": None if positions is None else list(positions),
        "k": found.k if found else None,
        "drafts": found.drafts if found else None,
        "draft_tokens": found.draft_tokens if found else None,
        "accepted_tokens": found.accepted_tokens if found else None,
        "wasted_tokens": found.wasted_tokens if found else None,
    }


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
