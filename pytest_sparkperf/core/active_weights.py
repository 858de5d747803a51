"""How many bytes of weights one step of one stream reads at least, from a checkpoint's own description."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Looked up by row, run once per image, or read by the draft alone.
_NOT_READ = ("embed_tokens", "wte.", "visual.", "vision", "mtp.", "audio")
_ROUTED = ".experts."
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
# A server may load these at half the width.
_WIDE = {"F64": 4, "F32": 2}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint: its name, dtype as safetensors writes it, and size in bytes."""

    name: str
    dtype: str
    size: int


def gb_per_token(
    config: Mapping[str, Any], tensors: Iterable[Tensor], *, quantized_on_load: bool = False
) -> float | None:
    """Return the least a step reads, in GB of 10^9 bytes; None where that cannot be told.

    Routed experts count by the share that one token chooses. ``config`` is the model's config.json. A
    checkpoint that is quantized while it is loaded is smaller in memory than on disk, by an unknown factor.
    """
    text = {**config, **(config.get("text_config") or {})}
    if quantized_on_load and not text.get("quantization_config"):
        return None
    experts, chosen = _first(text, _EXPERTS), _first(text, _CHOSEN)
    total = 0.0
    for tensor in tensors:
        size = tensor.size / _WIDE.get(tensor.dtype, 1)
        if any(part in tensor.name for part in _NOT_READ):
            continue
        if _ROUTED in tensor.name:
            if not experts or not chosen:
                return None
            size *= min(1.0, chosen / experts)
        total += size
    return total / 1e9 or None


def _first(config: Mapping[str, Any], names: Iterable[str]) -> int | None:
    found = (config.get(name) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), None)
