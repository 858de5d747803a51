"""The decode rate that memory bandwidth allows: what is faster was measured wrongly, never a fast server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pytest_sparkperf.core.validity import IMPOSSIBLE_RATE, Fault

# Peak bandwidth as the makers state it, in GB/s.
BANDWIDTH_GB_S: Mapping[str, float] = MappingProxyType(
    {
        "NVIDIA GB10": 273,
        "NVIDIA Thor": 273,
        "NVIDIA H100 80GB HBM3": 3350,
        "NVIDIA H200": 4800,
        "NVIDIA GeForce RTX 4090": 1008,
        "NVIDIA GeForce RTX 5090": 1792,
    }
)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most tokens per second one stream can get: every step reads the active weights once.

    A step yields at most k + 1 tokens, whatever the batch. ``gb_per_token`` is what a step of one stream
    reads at least: the active weights (for a mixture of experts those of one token), in GB of 10^9 bytes.
    """

    bandwidth_gb_s: float
    gb_per_token: float
    k: int

    @property
    def steps_s(self) -> float:
        """The most steps per second."""
        return self.bandwidth_gb_s / self.gb_per_token

    @property
    def decode_tok_s(self) -> float:
        """The most tokens per second of one stream, (1 + k) times the steps."""
        return (1 + self.k) * self.steps_s


def bandwidth_of(gpus: Sequence[str]) -> float | None:
    """Return the bandwidth of GPUs together (GB/s), by their names; None where one is not known."""
    known = {name.removeprefix("NVIDIA ").lower(): figure for name, figure in BANDWIDTH_GB_S.items()}
    found = [known.get(name.removeprefix("NVIDIA ").lower()) for name in gpus]
    figures = [figure for figure in found if figure is not None]
    return sum(figures) if figures and len(figures) == len(gpus) else None


def ceiling_of(*, bandwidth_gb_s: float | None, gb_per_token: float | None, k: int | None) -> Ceiling | None:
    """Return the ceiling of this bandwidth; None while a figure is unknown."""
    if not bandwidth_gb_s or not gb_per_token or k is None:
        return None
    return Ceiling(bandwidth_gb_s, gb_per_token, k)


def impossible_rate(decode_tok_s: float | None, ceiling: Ceiling | None) -> Fault | None:
    """Return the fault of a stream's rate above its ceiling; None for a possible rate or no known ceiling."""
    if decode_tok_s is None or ceiling is None or decode_tok_s <= ceiling.decode_tok_s:
        return None
    return Fault(
        IMPOSSIBLE_RATE,
        f"{decode_tok_s:.4g} tok/s where {ceiling.bandwidth_gb_s:.4g} GB/s and {ceiling.gb_per_token:.4g} GB "
        f"per token allow {ceiling.decode_tok_s:.4g} at k={ceiling.k}",
    )
