"""Two servers up at once: how they run then, and when a machine has no room for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.variant import Variant, beside_another

K = TypeVar("K")

# What fixes the size of a server's KV memory. Without one of them the first server takes all that is free.
_PINS = ("kv-cache-memory-bytes", "num-gpu-blocks-override")
_CPU_PIN = "VLLM_CPU_KVCACHE_SPACE"
_PINNED_BY = "resident: {gpu-memory-utilization: 0.35, kv-cache-memory-bytes: 4294967296}"


def residents(variants: Mapping[K, Variant], *, max_resident: int) -> dict[K, Variant]:
    """Return the variants of a comparison as they run beside each other.

    Raises ConfigError with the sentence to add where they cannot be up at once.
    """
    beside = {arm: beside_another(variant) for arm, variant in variants.items()}
    started = {variant for variant in beside.values() if takes_room(variant)}
    if len(started) < 2:
        return beside
    if len(started) > max_resident:
        raise ConfigError(
            f"max_resident: {max_resident} leaves no room for the two servers of a comparison; raise it to "
            f"{len(started)}, or attach to servers that already run"
        )
    for variant in started:
        if not is_pinned(variant):
            raise ConfigError(_no_pin(variant))
    return beside


def fit_together(variants: Mapping[K, Variant], *, max_resident: int) -> bool:
    """Say whether the servers of a comparison may be up at once as they are configured."""
    try:
        residents(variants, max_resident=max_resident)
    except ConfigError:
        return False
    return True


def takes_room(variant: Variant) -> bool:
    """Say whether the variant's server is started by us, and so takes memory that we answer for."""
    return variant.launch != "attach"


def is_pinned(variant: Variant) -> bool:
    """Say whether the size of the server's KV memory is fixed, whatever else is up when it starts."""
    if variant.launch == "sim":
        return True
    return any(variant.args.get(name) for name in _PINS) or _CPU_PIN in variant.env


def _no_pin(variant: Variant) -> str:
    what = f"target {variant.target!r} does not pin its KV memory"
    if variant.launch == "command":
        return (
            f"{what}, and a comparison needs two of its servers at once; let start: take {{args}}, and add "
            f"`{_PINNED_BY}` to the target, with figures that fit twice into this machine"
        )
    return (
        f"{what}, and a comparison needs two of its servers at once, where the first would leave nothing for "
        f"the second; add `{_PINNED_BY}` to it, with figures that fit twice into this machine"
    )
