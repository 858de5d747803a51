"""Every keyword of the ``sparkperf`` mark as data: group, kind of value, example and metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pytest_sparkperf.core.kinds import (
    COUNT,
    COUNT_OR_ZERO,
    MAPPING,
    POSITIVE,
    SHARE,
    TEXT,
    Kind,
    is_environment,
    is_number,
    is_plain_mapping,
    is_whole,
    one_of,
)
from pytest_sparkperf.core.slo import SLO_METRICS

Group = Literal["variant", "load", "limits", "comparison", "server facts", "budget"]


@dataclass(frozen=True, slots=True)
class Keyword:
    """One keyword.

    ``gives`` and ``example`` are what a message advises; ``metric`` is what a limit judges, of single
    requests with a ``quantile`` (0 to 1).
    """

    name: str
    group: Group
    kind: Kind
    gives: str
    example: str
    metric: str | None = None
    quantile: float | None = None


def _sampling(value: Any) -> bool:
    return value in ("greedy", "server") if isinstance(value, str) else is_plain_mapping(value)


def _against(value: Any) -> bool:
    return TEXT.accepts(value) or (is_plain_mapping(value) and bool(value))


def _share_or_dict(value: Any) -> bool:
    return SHARE.accepts(value) or _metrics(value, SHARE)


def _factor_or_dict(value: Any) -> bool:
    return POSITIVE.accepts(value) or _metrics(value, POSITIVE)


def _metrics(value: Any, kind: Kind) -> bool:
    """Tell whether a value maps at least one metric to values of a kind: none would compare nothing."""
    return is_plain_mapping(value) and bool(value) and all(map(kind.accepts, value.values()))


def _is_output_comparison(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    kinds = {"max_tokens": COUNT, "thinking": _SWITCH, "guided": _SWITCH, "strict": _SWITCH}
    return (
        is_plain_mapping(value)
        and bool(value)
        and all(name in kinds and kinds[name].accepts(one) for name, one in value.items())
    )


_SWITCH = Kind("True or False", lambda value: isinstance(value, bool))
_ENVIRONMENT = Kind("a dict of environment variables to texts or numbers", is_environment)
_SAMPLING = Kind("'greedy', 'server' or a dict", _sampling)
_RATE = Kind("a number above 0", lambda value: value == float("inf") or POSITIVE.accepts(value))
_AGAINST = Kind("a dict of variant keywords or a target's name", _against)
_SLOWDOWN = Kind("a number from 0 to 1 or a dict of metrics to such numbers", _share_or_dict)
_SPEEDUP = Kind("a number above 0 or a dict of metrics to such numbers", _factor_or_dict)
_SAME_OUTPUT = Kind("True, False or a dict of max_tokens, thinking, guided and strict", _is_output_comparison)
_ROUNDS = Kind("a whole number from 3 to 12", lambda value: is_whole(value) and 3 <= value <= 12)
_SLO = Kind(
    f"a dict of {', '.join(SLO_METRICS)} to numbers above 0",
    lambda value: _metrics(value, POSITIVE) and set(value) <= set(SLO_METRICS),
)
_TOLERANCE = Kind(
    "a number from 0 up to, but not including, 1", lambda value: is_number(value) and 0 <= value < 1
)

_VARIANT = (
    Keyword("target", "variant", TEXT, "the name of a target", "'qwen36'"),
    Keyword("k", "variant", COUNT_OR_ZERO, "num_speculative_tokens, 0 for none", "3"),
    Keyword("args", "variant", MAPPING, "vLLM options by name", '{"max-num-seqs": 32}'),
    Keyword("env", "variant", _ENVIRONMENT, "environment variables by name", '{"CUTE_DSL_ARCH": "sm_121a"}'),
    Keyword("model", "variant", TEXT, "a model's name or folder", "'nvidia/Qwen3.6-35B-A3B-NVFP4'"),
    Keyword("image", "variant", TEXT, "a container image", "'vllm/vllm-openai:v0.24.0'"),
    Keyword("executable", "variant", TEXT, "the path of vllm", "'/opt/vllm/bin/vllm'"),
)

_LOAD = (
    Keyword("workload", "load", TEXT, "the name of a workload", "'balanced'"),
    Keyword("prompt_tokens", "load", COUNT, "tokens", "1000"),
    Keyword("output_tokens", "load", COUNT, "tokens", "256"),
    Keyword("depth", "load", COUNT_OR_ZERO, "tokens already in context", "8192"),
    Keyword("system_prompt", "load", TEXT, "what the system message says", "'Answer briefly.'"),
    Keyword("ignore_eos", "load", _SWITCH, "whether answers go on to output_tokens", "False"),
    Keyword("concurrency", "load", COUNT, "requests in flight", "8"),
    Keyword("request_rate", "load", _RATE, "requests per second", "2.5"),
    Keyword("burstiness", "load", POSITIVE, "the shape of the gaps, 1 for Poisson", "0.5"),
    Keyword("requests", "load", COUNT, "a number of requests", "100"),
    Keyword("slo", "load", _SLO, "limits of goodput in ms", '{"ttft_ms": 500, "tpot_ms": 50}'),
    Keyword("dataset", "load", TEXT, "where the prompts come from", "'random'"),
    Keyword("seed", "load", COUNT_OR_ZERO, "a number that other prompts follow from", "1"),
    Keyword("messages", "load", TEXT, "a JSON file", "'messages.json'"),
    Keyword("tools", "load", TEXT, "a JSON file", "'tools.json'"),
    Keyword("endpoint", "load", one_of("chat", "completions"), "the API to use", "'chat'"),
    Keyword("thinking", "load", _SWITCH, "whether the model may think", "True"),
    Keyword("sampling", "load", _SAMPLING, "how tokens are chosen", '{"temperature": 0.6}'),
    Keyword("body", "load", MAPPING, "further request fields", '{"top_k": 20}'),
    Keyword("prefix_cache", "load", one_of("cold", "warm"), "the state of the prefix cache", "'cold'"),
    Keyword("queueing", "load", _SWITCH, "whether requests may wait in the server's queue", "True"),
)

PERCENTILES = ("p50", "p90", "p95", "p99")
_LATENCIES = (("ttft", "500"), ("tpot", "12.5"), ("itl", "50"), ("e2el", "5000"))


def _latency(name: str, example: str, percentile: str = "") -> Keyword:
    keyword = f"max_{name}_{percentile}_ms" if percentile else f"max_{name}_ms"
    quantile = int(percentile[1:]) / 100 if percentile else None
    return Keyword(keyword, "limits", POSITIVE, "milliseconds", example, f"{name}_ms", quantile=quantile)


_LIMITS = (
    Keyword("min_decode", "limits", POSITIVE, "tokens per second", "100", "decode_tok_s"),
    Keyword("min_output_throughput", "limits", POSITIVE, "tokens per second", "300", "output_tok_s"),
    Keyword("min_prefill", "limits", POSITIVE, "tokens per second", "2000", "prefill_tok_s"),
    Keyword(
        "min_request_throughput",
        "limits",
        POSITIVE,
        "requests per second",
        "2.5",
        "requests_per_s",
    ),
    Keyword("min_goodput", "limits", POSITIVE, "requests per second", "2.5", "goodput_rps"),
    *(_latency(name, example) for name, example in _LATENCIES),
    *(
        _latency(name, example, percentile)
        for name, example in _LATENCIES
        for percentile in PERCENTILES
        if name != "itl"
    ),
    Keyword("min_acceptance_rate", "limits", SHARE, "accepted per drafted token", "0.6", "acceptance_rate"),
    Keyword("min_acceptance_length", "limits", POSITIVE, "tokens per step", "2.5", "acceptance_length"),
    Keyword("max_error_rate", "limits", SHARE, "failed requests per request", "0.01", "error_rate"),
    Keyword("max_memory_gib", "limits", POSITIVE, "GiB", "100", "memory_gib"),
    Keyword("min_kv_cache_tokens", "limits", COUNT, "tokens", "300_000", "kv_cache_tokens"),
)

_COMPARISON = (
    Keyword("against", "comparison", _AGAINST, "what to compare with", '{"k": 0}'),
    Keyword("max_slowdown", "comparison", _SLOWDOWN, "the share that may be lost", "0.05"),
    Keyword("min_speedup", "comparison", _SPEEDUP, "the least factor", "1.25"),
    Keyword("same_output", "comparison", _SAME_OUTPUT, "whether outputs must be equal", "True"),
    Keyword("max_kv_loss", "comparison", SHARE, "the share that may be lost", "0.2"),
)

_REST = (
    Keyword("expect", "server facts", MAPPING, "server facts", '{"moe_backend": "MARLIN"}'),
    Keyword("max_rounds", "budget", _ROUNDS, "rounds", "12"),
    Keyword("budget_s", "budget", POSITIVE, "seconds", "600"),
    Keyword("tolerance", "budget", _TOLERANCE, "a share of the limit", "0.02"),
    Keyword("name", "budget", TEXT, "a stable name", "'single-stream'"),
)

KEYWORDS: Mapping[str, Keyword] = MappingProxyType(
    {word.name: word for word in (*_VARIANT, *_LOAD, *_LIMITS, *_COMPARISON, *_REST)}
)


# What one would look for beside the percentiles of the other latencies, and cannot be judged.
ITL_PERCENTILES = tuple(f"max_itl_{percentile}_ms" for percentile in PERCENTILES)

# Comparisons of speed, and the metrics they may name.
COMPARISONS = ("max_slowdown", "min_speedup")
COMPARABLE = (
    "decode_tok_s",
    "output_tok_s",
    "decode_throughput_tok_s",
    "prefill_tok_s",
    "input_tok_s",
    "requests_per_s",
    "ttft_ms",
    "tpot_ms",
    "e2el_ms",
)


def valid_keywords() -> str:
    """Return the list of valid keywords for a message, percentile variants in short."""
    plain = [name for name in KEYWORDS if not any(f"_{percentile}_" in name for percentile in PERCENTILES)]
    return f"{', '.join(plain)}; latencies also by percentile, such as max_ttft_p90_ms (p50, p90, p95, p99)"
