"""Which server answers: its k and facts, read from the pages it serves. What it does not say is absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.adapters.pages import Page, fetch
from pytest_sparkperf.core.cachefacts import cache_facts
from pytest_sparkperf.core.exposition import parse_exposition

_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_SPECULATIVE = "vllm:spec_decode_"
_SIMULATED_VERSION, _SIMULATED_OWNER = "sparkperf.sim", "sparkperf-sim"
# What a simulator tells of the machine that it is.
_SIMULATED_FACTS = ("time_scale", "bandwidth_gb_s", "gb_per_token")
_INFO_FACTS = {
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "device": ("device_config", "device"),
    "prefix_caching": ("cache_config", "enable_prefix_caching"),
    "speculative_method": ("speculative_config", "method"),
    "revision": ("model_config", "revision"),
    "quantization": ("model_config", "quantization"),
}
# What the page tells of the machine that the server runs on, which may be another one than this.
_SYSTEM_FACTS = {"torch": "torch_version", "driver": "nvidia_driver_version", "os": "os"}


def read_facts(client: httpx.Client, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a ready server by name; ``model`` is its entry of ``/v1/models``.

    ``k`` is None where neither ``/server_info`` nor ``/metrics`` tells.
    """
    info = fetch(client, "/server_info?config_format=json")
    version = fetch(client, "/version").get("version")
    found = {name: info.get("vllm_config", *keys) for name, keys in _INFO_FACTS.items()}
    found |= {name: info.get("system_env", key) for name, key in _SYSTEM_FACTS.items()}
    if found["device"] == "cpu":
        found["driver"] = None  # of a GPU that serves nothing here
    found |= {"model": model["id"], "max_model_len": model.get("max_model_len"), "version": version}
    facts = {name: value for name, value in found.items() if value is not None}
    simulated = str(version).endswith(_SIMULATED_VERSION) or model.get("owned_by") == _SIMULATED_OWNER
    metrics = fetch(client, "/metrics").text
    sizes = cache_facts(parse_exposition(metrics)).size_tokens
    facts |= {"k": _draft_tokens(metrics, info), "simulated": simulated}
    facts |= {"kv_cache_tokens": sizes} if sizes else {}
    told = {name: info.get("system_env", name) for name in _SIMULATED_FACTS} if simulated else {}
    return facts | {name: one for name, one in told.items() if isinstance(one, int | float) and one > 0}


def _draft_tokens(metrics: str, info: Page) -> int | None:
    config = info.get("vllm_config")
    if isinstance(config, dict) and "speculative_config" in config:
        number = info.get("vllm_config", "speculative_config", "num_speculative_tokens")
        if config["speculative_config"] is None:
            return 0
        if isinstance(number, int):
            return number
    return draft_tokens_of(metrics)


def draft_tokens_of(exposition: str) -> int | None:
    """Return k as ``/metrics`` shows it: how many draft positions, 0 when vLLM counts none, else None."""
    scrape = parse_exposition(exposition)
    positions = scrape.by_label(_PER_POSITION, "position")
    if positions:
        return len(positions)
    names = [name for name in scrape.samples if name.startswith("vllm:")]
    return 0 if names and not any(name.startswith(_SPECULATIVE) for name in names) else None
