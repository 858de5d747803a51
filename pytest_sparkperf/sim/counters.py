"""What the simulated engine counts, and its page of Prometheus text with vLLM's names."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

# vLLM's own bucket borders.
_TTFT_BORDERS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_TPOT_BORDERS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_LATENCY_BORDERS_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0)
_FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")

_GAUGES = {
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}


class Histogram:
    """Counts by bucket, with the sum of what was observed, in seconds."""

    def __init__(self, borders_s: tuple[float, ...]) -> None:
        self.borders_s = borders_s
        self.counts = [0] * (len(borders_s) + 1)
        self.sum_s = 0.0

    def observe(self, value_s: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.borders_s, value_s)] += 1
        self.sum_s += value_s


class Counters:
    """Everything the engine counts since it started."""

    def __init__(self, draft_tokens: int) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.drafts = 0
        self.draft_tokens = draft_tokens
        self.accepted_per_position = [0] * draft_tokens
        self.finished: Counter[str] = Counter()
        self.ttft = Histogram(_TTFT_BORDERS_S)
        self.tpot = Histogram(_TPOT_BORDERS_S)
        self.e2e_latency = Histogram(_LATENCY_BORDERS_S)

    def count_draft(self, accepted: int) -> None:
        """Count one draft of which the first ``accepted`` tokens were right."""
        self.drafts += 1
        for position in range(accepted):
            self.accepted_per_position[position] += 1


def exposition(
    counters: Counters,
    gauges: Mapping[str, float],
    *,
    model_name: str,
    created_s: float,
    cache_config: Mapping[str, str] | None = None,
) -> str:
    """Return the page: counters with their ``_created`` twins, gauges and histograms, labelled as vLLM does.

    ``gauges`` are by name without the ``vllm:`` prefix; ``created_s`` is the Unix time of the server's start;
    ``cache_config`` are the labels of ``cache_config_info``.
    """
    labels = f'engine="0",model_name="{model_name}"'
    lines: list[str] = []
    for name, text, samples in _counter_families(counters):
        labelled = [(labels + extra, value) for extra, value in samples]
        lines += _counter_lines(f"vllm:{name}", text, labelled, created_s)
    for name, value in gauges.items():
        lines += _head(f"vllm:{name}", _GAUGES[name], "gauge")
        lines.append(f"vllm:{name}{{{labels}}} {float(value)}")
    if cache_config is not None:
        told = ",".join(f'{key}="{value}"' for key, value in sorted({**cache_config, "engine": "0"}.items()))
        lines += _head("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge")
        lines.append(f"vllm:cache_config_info{{{told}}} 1.0")
    for name, text, histogram in _histograms(counters):
        lines += _histogram_lines(f"vllm:{name}", text, histogram, labels)
        lines += _head(f"vllm:{name}_created", text, "gauge")
        lines.append(f"vllm:{name}_created{{{labels}}} {created_s!r}")
    return "\n".join(lines) + "\n"


_Samples = list[tuple[str, int]]


def _counter_families(counters: Counters) -> Iterator[tuple[str, str, _Samples]]:
    if counters.draft_tokens:
        accepted = counters.accepted_per_position
        by_position = [(f',position="{position}"', count) for position, count in enumerate(accepted)]
        drafted = counters.drafts * counters.draft_tokens
        yield "spec_decode_num_drafts", "Number of spec decoding drafts.", [("", counters.drafts)]
        yield "spec_decode_num_draft_tokens", "Number of draft tokens.", [("", drafted)]
        yield "spec_decode_num_accepted_tokens", "Number of accepted tokens.", [("", sum(accepted))]
        yield "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", by_position
    queries, hits = [("", counters.prefix_queries)], [("", counters.prefix_hits)]
    yield "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", queries
    yield "prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", hits
    yield "num_preemptions", "Cumulative number of preemption from the engine.", [("", 0)]
    yield "prompt_tokens", "Number of prefill tokens processed.", [("", counters.prompt_tokens)]
    yield "generation_tokens", "Number of generation tokens processed.", [("", counters.generation_tokens)]
    by_reason = [(f',finished_reason="{reason}"', counters.finished[reason]) for reason in _FINISHED_REASONS]
    yield "request_success", "Count of successfully processed requests.", by_reason


def _histograms(counters: Counters) -> Iterator[tuple[str, str, Histogram]]:
    ttft = "Histogram of time to first token in seconds."
    tpot = "Histogram of time_per_output_token_seconds per request."
    yield "time_to_first_token_seconds", ttft, counters.ttft
    yield "request_time_per_output_token_seconds", tpot, counters.tpot
    yield "e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", counters.e2e_latency


def _counter_lines(name: str, text: str, samples: list[tuple[str, int]], created_s: float) -> list[str]:
    lines = _head(f"{name}_total", text, "counter")
    lines += [f"{name}_total{{{labels}}} {float(value)}" for labels, value in samples]
    lines += _head(f"{name}_created", text, "gauge")
    lines += [f"{name}_created{{{labels}}} {created_s!r}" for labels, _ in samples]
    return lines


def _histogram_lines(name: str, text: str, histogram: Histogram, labels: str) -> list[str]:
    lines = _head(name, text, "histogram")
    borders = [*(str(border) for border in histogram.borders_s), "+Inf"]
    totals = list(accumulate(histogram.counts))
    for border, total in zip(borders, totals, strict=True):
        lines.append(f'{name}_bucket{{{labels},le="{border}"}} {float(total)}')
    lines.append(f"{name}_count{{{labels}}} {float(totals[-1])}")
    lines.append(f"{name}_sum{{{labels}}} {histogram.sum_s!r}")
    return lines


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
