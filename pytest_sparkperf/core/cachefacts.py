"""What a server's metrics say about its prefix cache."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_sparkperf.core.exposition import Scrape

CACHE_HITS = "vllm:prefix_cache_hits_total"
_INFO = "vllm:cache_config_info"


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """Whether prefix caching is on, and how many tokens a block has; None where the server does not say.

    ``size_tokens`` holds how many tokens the whole cache of each engine has; empty where it is not told.
    """

    enabled: bool | None = None
    block_tokens: int | None = None
    size_tokens: tuple[int, ...] = ()


def cache_facts(scrape: Scrape | None) -> CacheFacts:
    """Read the facts from the labels of vLLM's ``cache_config_info``."""
    labels = [dict(series) for series in scrape.series(_INFO)] if scrape else []
    enabled = {one["enable_prefix_caching"] for one in labels if "enable_prefix_caching" in one}
    blocks = [int(one["block_size"]) for one in labels if one.get("block_size", "").isdigit()]
    sizes = [one.get("kv_cache_size_tokens", "") for one in labels]
    return CacheFacts(
        enabled=None if not enabled else enabled == {"True"},
        block_tokens=max(blocks, default=None),
        size_tokens=tuple(int(size) for size in sizes if size.isdigit()),
    )
