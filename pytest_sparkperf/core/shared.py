"""Measuring a server that others use meanwhile: what its counters say, and what cannot be asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_sparkperf.core.acceptance import ACCEPTANCE_METRICS
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.exposition import Delta
from pytest_sparkperf.core.gate import UNSAMPLED, GateSpec
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.variant import Variant

ANSWERED = "vllm:e2e_request_latency_seconds_count"
COUNTED = "judged by the server's own counters, in which requests of others count too (traffic: shared)"
# Seconds per request, by the histogram's names from the newest release to the oldest.
_HISTOGRAMS: Mapping[str, tuple[str, ...]] = {
    "ttft_ms": ("vllm:time_to_first_token_seconds",),
    "tpot_ms": ("vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds"),
    "e2el_ms": ("vllm:e2e_request_latency_seconds",),
}
_FIGURES = ("decode_tok_s", *_HISTOGRAMS)


def counter_figures(delta: Delta) -> Mapping[str, float | None]:
    """Return the figures of all requests that ended between two scrapes, by metric; None where none did.

    Means over requests, from the growth of vLLM's histograms; what those do not tell is None.
    """
    figures: dict[str, float | None] = dict.fromkeys(METRICS)
    for metric, names in _HISTOGRAMS.items():
        figures[metric] = next(filter(None, (_mean_ms(delta, name) for name in names)), None)
    tpot_ms = figures["tpot_ms"]
    figures["decode_tok_s"] = None if tpot_ms is None else 1000 / tpot_ms
    return figures


def check_shared(spec: GateSpec, variant: Variant) -> None:
    """Raise ConfigError for what cannot be asked of a server that others use; nothing for any other."""
    if variant.traffic == "shared":
        for fault in _faults(spec, f"target {variant.target!r}, which says traffic: shared"):
            raise ConfigError(fault)


def _faults(spec: GateSpec, where: str) -> Iterator[str]:
    if spec.load.concurrency > 1:
        yield (
            f"concurrency={spec.load.concurrency} cannot be measured on {where}: requests of others would "
            f"fill the batch too, and nothing would tell; measure concurrency=1 there, or keep others off it "
            f"and say traffic: exclusive"
        )
    if spec.load.is_run and spec.load.concurrency == 1:
        yield (
            f"requests={spec.load.requests} as one run cannot be measured on {where}: its segments would "
            f"hold the requests of others; leave requests out, or keep others off it and say traffic: "
            "exclusive"
        )
    if spec.by_baseline:
        yield (
            f"{spec.by_baseline[0].gate} cannot be judged on {where}: what others send is another load in "
            f"each run; compare with against=, or keep others off it and say traffic: exclusive"
        )
    if spec.same_output:
        yield (
            f"same_output cannot be asked of {where}: it sends several requests at once; keep others off it "
            f"and say traffic: exclusive"
        )
    # Acceptance has its own reason, told where a server is known.
    elsewhere = (*UNSAMPLED, *ACCEPTANCE_METRICS)
    metrics = {limit.gate: limit.metric for limit in spec.limits if limit.metric not in elsewhere}
    metrics |= {one.gate: one.metric for one in spec.comparisons if one.metric is not None}
    percentiles = {limit.gate for limit in spec.limits if limit.quantile is not None}
    for gate, metric in metrics.items():
        if metric not in _FIGURES or gate in percentiles:
            yield (
                f"{gate} cannot be judged on {where}: its counters tell {', '.join(_FIGURES)} as means over "
                f"all requests; limit one of these, or keep others off it and say traffic: exclusive"
            )


def _mean_ms(delta: Delta, name: str) -> float | None:
    seconds, count = delta.total(f"{name}_sum"), delta.total(f"{name}_count")
    return 1000 * seconds / count if seconds and count else None
