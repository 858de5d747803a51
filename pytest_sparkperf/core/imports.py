"""Results of other tools as records: ``vllm bench serve``, llama-benchy and pytest-benchmark JSON.

Each tool measures in its own way, so an import names its tool as the source of its work, and is thereby never
in one interval with runs of our own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.baseline import TIME_FORMAT, Figure, Record, Work, rounded
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.fingerprint import public
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.kinds import is_number
from pytest_sparkperf.core.metrics import METRICS

VLLM_BENCH = "vllm bench serve"
LLAMA_BENCHY = "llama-benchy"
PYTEST_BENCHMARK = "pytest-benchmark"
_SECONDS_TO_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Imported:
    """One result of another tool: what was measured, and the record made of it.

    ``label`` tells the results of one file apart.
    """

    label: str
    work: Work
    record: Record


def read_results(text: str, name: str) -> tuple[Imported, ...]:
    """Read a file of results, recognised by its shape; ``name`` stands in each error.

    Raises ConfigError for what is none of the known forms, or holds no usable result.
    """
    documents = _documents(text, name)
    found: list[Imported] = []
    for document in documents:
        reader = next((read for keys, read in _READERS.items() if keys <= set(document)), None)
        if reader is None:
            raise ConfigError(
                f"{name}: is no result of {VLLM_BENCH} (--save-result), {LLAMA_BENCHY} (--format json) or "
                f"{PYTEST_BENCHMARK} (--benchmark-json); its keys are "
                f"{', '.join(sorted(document)[:8]) or 'none'}"
            )
        try:
            found += reader(document)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ConfigError(
                f"{name}: looks like a result of another tool and cannot be read: {type(error).__name__} at "
                f"{error}; give the file as the tool wrote it"
            ) from error
    if not found:
        raise ConfigError(
            f"{name}: holds no result that could be used; give a file with at least one finished run"
        )
    return tuple(found)


def _documents(text: str, name: str) -> list[Mapping[str, Any]]:
    """Load one document, or one a line as ``--append-result`` writes them."""
    try:
        loaded = [json.loads(text)]
    except ValueError as error:
        try:
            loaded = [json.loads(line) for line in text.strip().splitlines() or [text]]
        except ValueError:
            raise ConfigError(f"{name}: is not JSON: {error}; give the file as the tool wrote it") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: is nested too deeply; give the file as the tool wrote it") from error
    if not loaded or not all(isinstance(document, dict) for document in loaded):
        raise ConfigError(f"{name}: is not a JSON object; give the file as the tool wrote it")
    return loaded


# ---------------------------------------------------------------------- vllm bench serve
_VLLM_FIGURES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "output_tok_s": ("output_throughput", 1.0),
        "requests_per_s": ("request_throughput", 1.0),
        "goodput_rps": ("request_goodput", 1.0),
        "ttft_ms": ("mean_ttft_ms", 1.0),
        "tpot_ms": ("mean_tpot_ms", 1.0),
        "itl_ms": ("mean_itl_ms", 1.0),
        "e2el_ms": ("mean_e2el_ms", 1.0),
        "acceptance_rate": ("spec_decode_acceptance_rate", 0.01),  # there a percentage
        "acceptance_length": ("spec_decode_acceptance_length", 1.0),
    }
)


def _vllm_bench(document: Mapping[str, Any]) -> Iterator[Imported]:
    completed, failed = document["completed"], document.get("failed", 0)
    if not completed or failed:
        raise ValueError(f"completed {completed}, failed {failed}: a run with failed requests is no baseline")
    values = {name: _scaled(document.get(key), scale) for name, (key, scale) in _VLLM_FIGURES.items()}
    values |= _inverse(document.get("mean_tpot_ms"))
    if document["duration"] > 0:
        values["input_tok_s"] = document["total_input_tokens"] / document["duration"]
    positions = document.get("spec_decode_per_position_acceptance_rates")
    each = {side: round(document[f"total_{side}_tokens"] / completed) for side in ("input", "output")}
    workload = (
        f"{document['num_prompts']} prompts of about {each['input']} tokens, {each['output']} out, "
        f"concurrency {document.get('max_concurrency')}, rate {document['request_rate']}, "
        f"{document['endpoint_type']}"
    )
    when = datetime.strptime(document["date"], "%Y%m%d-%H%M%S").strftime(TIME_FORMAT)
    work = Work(
        public(document["model_id"]),
        len(positions) if positions else None,
        None,
        workload,
        "n_minus_1",
        VLLM_BENCH,
    )
    yield _imported(workload, work, when, 1, {name: (value, None) for name, value in values.items()})


# ---------------------------------------------------------------------- llama-benchy
def _llama_benchy(document: Mapping[str, Any]) -> Iterator[Imported]:
    when = datetime.strptime(document["timestamp"].rstrip("Z"), "%Y-%m-%d %H:%M:%S").strftime(TIME_FORMAT)
    for run in document["benchmarks"]:
        if run["is_context_prefill_phase"]:
            continue  # fills the context that the next entry measures on
        alone = run["concurrency"] == 1
        figures = {
            "decode_tok_s": _spread(run.get("tg_throughput" if alone else "tg_req_throughput")),
            "decode_throughput_tok_s": _spread(run.get("tg_throughput")),
            "prefill_tok_s": _spread(run.get("pp_throughput" if alone else "pp_req_throughput")),
            "ttft_ms": _spread(run.get("e2e_ttft")),
        }
        workload = (
            f"pp{run['prompt_size']} tg{run['response_size']} d{run['context_size']}, concurrency "
            f"{run['concurrency']}, latency mode {document['latency_mode']}"
        )
        work = Work(public(document["model"]), None, None, workload, "minus_first_event", LLAMA_BENCHY)
        repeats = max(
            (len(run[key]["values"]) for key in ("tg_throughput", "pp_throughput") if run.get(key)), default=1
        )
        yield _imported(workload, work, when, repeats, figures)


def _spread(metric: Mapping[str, Any] | None) -> tuple[float | None, float | None]:
    """Return mean and relative standard deviation of one of its metrics."""
    if metric is None:
        return None, None
    mean, std = metric["mean"], metric["std"]
    return mean, std / mean if is_number(mean) and mean > 0 and std > 0 else None


# ---------------------------------------------------------------------- pytest-benchmark
def _pytest_benchmark(document: Mapping[str, Any]) -> Iterator[Imported]:
    taken = datetime.fromisoformat(document["datetime"])
    when = (taken.astimezone(UTC) if taken.tzinfo else taken).strftime(TIME_FORMAT)
    commit = (document.get("commit_info") or {}).get("id")
    for benchmark in document["benchmarks"]:
        extra, stats = benchmark.get("extra_info") or {}, benchmark["stats"]
        figures = {name: _listed(extra[name]) for name in METRICS if name in extra}
        if not figures:
            # The time of the call that was benchmarked, which is all that such a file is sure to hold.
            sd = stats["stddev"] / stats["mean"] if stats["mean"] > 0 and stats["stddev"] > 0 else None
            figures = {"e2el_ms": (stats["mean"] * _SECONDS_TO_MS, sd)}
        label = benchmark["fullname"]
        work = Work(
            str(extra.get("model", "unknown")), _k(extra.get("k")), None, label, None, PYTEST_BENCHMARK
        )
        yield _imported(label, work, when, stats["rounds"], figures, commit)


def _k(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _listed(value: Any) -> tuple[float | None, float | None]:
    """Return the mean of a figure that may be a list of one per round."""
    values = [one for one in (value if isinstance(value, list) else [value]) if is_number(one)]
    return (sum(values) / len(values) if values else None), None


# ---------------------------------------------------------------------- common
_READERS: Mapping[frozenset[str], Callable[[Mapping[str, Any]], Iterator[Imported]]] = MappingProxyType(
    {
        frozenset({"endpoint_type", "completed", "request_rate"}): _vllm_bench,
        frozenset({"latency_mode", "benchmarks"}): _llama_benchy,
        frozenset({"machine_info", "benchmarks"}): _pytest_benchmark,
    }
)


def _imported(
    label: str,
    work: Work,
    when: str,
    rounds: int,
    values: Mapping[str, tuple[float | None, float | None]],
    commit: str | None = None,
) -> Imported:
    figures = {
        name: Figure(rounded(value), None if sd is None else rounded(sd, 3))
        for name, (value, sd) in values.items()
        if value is not None and is_number(value) and math.isfinite(value) and value > 0
    }
    if not figures:
        raise ValueError(f"{label}: holds no figure")
    run = f"{work.source} {when}"
    record = Record(
        run, when, rounds, MappingProxyType(figures), commit=commit, facts=FrozenMap({"model": work.model})
    )
    return Imported(label, work, record)


def _scaled(value: Any, scale: float) -> float | None:
    return value * scale if is_number(value) else None


def _inverse(tpot_ms: Any) -> dict[str, float]:
    return {"decode_tok_s": _SECONDS_TO_MS / tpot_ms} if is_number(tpot_ms) and tpot_ms > 0 else {}
