"""What each metric is: name, unit, direction and formula, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity.

    ``name`` is the attribute of :class:`~pytest_sparkperf.core.result.Result` and carries the unit;
    ``unit`` is what is printed after a figure; ``formula`` is the definition as printed in the docs.
    """

    name: str
    unit: str
    higher_is_better: bool
    formula: str


_ALL = (
    Metric("decode_tok_s", "tok/s", True, "1 / TPOT of one stream"),
    Metric("output_tok_s", "tok/s", True, "output tokens / (first request written to last token event)"),
    Metric(
        "decode_throughput_tok_s", "tok/s", True, "output tokens / (first to last token event of all streams)"
    ),
    Metric("prefill_tok_s", "tok/s", True, "uncached prompt tokens / TTFT of one request"),
    Metric("input_tok_s", "tok/s", True, "prompt tokens / (first request written to last token event)"),
    Metric(
        "requests_per_s", "req/s", True, "completed requests / (first request written to last token event)"
    ),
    Metric("goodput_rps", "req/s", True, "requests that meet every stated limit / wall time"),
    Metric(
        "ttft_ms", "ms", False, "request written to first non-empty content, reasoning or tool-call delta"
    ),
    Metric(
        "tpot_ms", "ms", False, "(last - first token event) / (output tokens - tokens of the first event)"
    ),
    Metric("itl_ms", "ms", False, "gap between token events (chunks); not comparable between MTP on and off"),
    Metric("e2el_ms", "ms", False, "request written to last token event"),
    Metric("step_ms", "ms", False, "decode time / drafts"),
    Metric(
        "acceptance_rate", "", True, "accepted / drafted tokens, from differences of the server's counters"
    ),
    Metric(
        "acceptance_length",
        "tokens",
        True,
        "1 + accepted / drafts, from differences of the server's counters",
    ),
    Metric("error_rate", "", False, "requests failed by the server at the first attempt / requests sent"),
    Metric("memory_gib", "GiB", False, "memory of the idle server after warm-up"),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ALL})
