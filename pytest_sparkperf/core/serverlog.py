"""Reads facts, statistics and warnings of a vLLM server from its log, in the wordings of many releases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.logfault import Fatal, fatal_reason, find_fatal
from pytest_sparkperf.core.logline import BANNER, LogLine, last_start, log_lines

__all__ = [
    "Fatal",
    "LogFacts",
    "SpecDecodingInterval",
    "StatsLine",
    "fatal_reason",
    "find_fatal",
    "is_ready_line",
    "jit_kernels",
    "parse_log",
    "spec_decoding_intervals",
    "stats_lines",
]


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log says about its server; None (or an empty tuple) where it says nothing.

    ``kv_cache_tokens`` and ``max_concurrency`` have one entry per engine, ordered by the engine's name, since
    the order of the lines changes from start to start. ``k`` is 0 where the engine line says that nothing
    speculates. The load figures are those of the process that took most.
    """

    vllm_version: str | None = None
    k: int | None = None
    speculative_method: str | None = None
    kv_cache_tokens: tuple[int, ...] = ()
    max_concurrency: tuple[float, ...] = ()
    max_model_len: int | None = None
    moe_backend: str | None = None
    moe_quantization: str | None = None
    draft_moe_backend: str | None = None
    draft_moe_quantization: str | None = None
    attention_backend: str | None = None
    model_load_gib: float | None = None
    model_load_s: float | None = None
    available_kv_cache_gib: float | None = None
    device_free_gib: float | None = None
    device_total_gib: float | None = None
    device_wanted_gib: float | None = None
    url: str | None = None
    startup_complete: bool = False

    @property
    def kv_cache_tokens_min(self) -> int | None:
        """KV cache of the smallest engine, in tokens: the figure that stays the same from start to start."""
        return min(self.kv_cache_tokens, default=None)


@dataclass(frozen=True, slots=True)
class SpecDecodingInterval:
    """One SpecDecoding line: the tokens of one logging interval.

    ``cumulative`` marks the line of the V0 engine, whose counts run since the start. ``draft_depth`` is what
    some builds print as the present depth, ``k`` what V0 prints.
    """

    accepted_tokens: int
    draft_tokens: int
    rate: float | None = None
    length: float | None = None
    per_position: tuple[float, ...] = ()
    draft_depth: int | None = None
    k: int | None = None
    cumulative: bool = False


@dataclass(frozen=True, slots=True)
class StatsLine:
    """One throughput line of the engine; that none appears is no sign of no traffic."""

    engine: str
    prompt_tok_s: float | None
    generation_tok_s: float | None
    running: int | None
    waiting: int | None
    kv_cache_ratio: float | None
    prefix_hit_ratio: float | None


Found = Sequence[tuple[str, Any]]


def _integer(text: str) -> int:
    return int(text.replace(",", ""))


def _first(found: Found) -> Any:
    return found[0][1]


def _last(found: Found) -> Any:
    return found[-1][1]


def _largest(found: Found) -> Any:
    return max(value for _, value in found)


def _smallest(found: Found) -> Any:
    return min(value for _, value in found)


def _each_engine(found: Found) -> Any:
    engines = dict(found)  # by process name: an engine that was started again replaces itself
    return tuple(engines[name] for name in sorted(engines, key=_natural))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


# One wording each, matched at the start of a line behind its prefixes; groups are fields of LogFacts.
_ENGINE = r"Initializing an? (?:V\d )?LLM engine \(v(?P<vllm_version>[^)]+)\) with config: "
_MEMORY = r"\((?P<device_free_gib>[\d.]+)/(?P<device_total_gib>[\d.]+) GiB\) on startup"
_WORDINGS = (
    BANNER,
    re.compile(_ENGINE),
    re.compile(_ENGINE + r".*?\bspeculative_config=(?P<k>None)\b"),
    re.compile(
        _ENGINE + r".*?\bspeculative_config=SpeculativeConfig\("
        r"(?:method='(?P<speculative_method>[^']*)')?.*?num_spec_tokens=(?P<k>\d+)"
    ),
    re.compile(r"\w+ KV cache size: (?P<kv_cache_tokens>[\d,]+) tokens"),
    re.compile(
        r"(?:\w+ KV cache size: [\d,]+ tokens, )?"
        r"Maximum concurrency for (?P<max_model_len>[\d,]+) tokens per request: (?P<max_concurrency>[\d.]+)x"
    ),
    re.compile(r"Using (?P<attention_backend>\w+) attention backend\b"),
    re.compile(r"Using (?P<attention_backend>[\w ]+?) backend on V1 engine"),
    re.compile(
        r"Model loading took (?P<model_load_gib>[\d.]+) GiB (?:memory )?and (?P<model_load_s>[\d.]+) seconds"
    ),
    re.compile(r"Available KV cache memory: (?P<available_kv_cache_gib>[\d.]+) GiB"),
    re.compile(
        rf"(?:ValueError: )?Free memory on device (?:\S+ )?{_MEMORY}"
        r".*?[Dd]esired GPU memory utilization (?:is )?\([\d.]+, (?P<device_wanted_gib>[\d.]+) GiB\)"
    ),
    re.compile(r"Starting vLLM (?:API )?server(?: \d+)? on (?P<url>http\S+)"),
    re.compile(r"(?P<startup_complete>Application startup complete\.)"),
)
_Reader = Callable[[str], Any]
_Choice = Callable[[Found], Any]
_FIELDS: Mapping[str, tuple[_Reader, _Choice]] = MappingProxyType(
    {
        "vllm_version": (str, _last),
        "k": (lambda text: 0 if text == "None" else int(text), _last),
        "speculative_method": (str, _last),
        "kv_cache_tokens": (_integer, _each_engine),
        "max_concurrency": (float, _each_engine),
        "max_model_len": (_integer, _last),
        "attention_backend": (str, _first),  # a drafter's, when it has its own line, comes later
        "model_load_gib": (float, _largest),
        "model_load_s": (float, _largest),
        "available_kv_cache_gib": (float, _smallest),
        "device_free_gib": (float, _last),
        "device_total_gib": (float, _last),
        "device_wanted_gib": (float, _last),
        "url": (str, _last),
        "startup_complete": (bool, _last),
    }
)
# The list of candidates that may follow always names EMULATION: only the name in front of the scheme counts.
_MOE = re.compile(r"Using '?(?P<backend>[\w ]+?)'? (?P<quantization>\w+) MoE backend\b")
_DRAFTER = re.compile(r"Loading drafter model")
_READY = re.compile(r"Starting vLLM (?:API )?server(?: \d+)? on http")
_JIT = re.compile(r".*JIT compilation during inference: (?P<kernel>\S+?)\.?(?:\s|$)")
_SPEC = re.compile(r"(?:(?P<now>SpecDecoding)|Speculative) metrics: (?P<values>.*)")
_STATS = re.compile(
    r"(?:(?P<engine>Engine \d+|\d+ Engines Aggregated): )?(?P<values>Avg prompt throughput: .*)"
)
_NAMED_VALUE = re.compile(r"(?P<name>[A-Z][\w -]*): (?P<value>.*?)(?=, [A-Z][\w -]*: |$)")
_NUMBER = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)(?P<percent>%)?")


def parse_log(text: str) -> LogFacts:
    """Return the facts that a log states about its server; of several starts in it, those of the last."""
    lines = last_start(list(log_lines(text)))
    found: dict[str, list[tuple[str, Any]]] = {}
    for line in lines:
        for wording in _WORDINGS:
            match = wording.match(line.body)
            for field, value in (match.groupdict() if match else {}).items():
                if value is not None:
                    found.setdefault(field, []).append((line.process or "", _FIELDS[field][0](value)))
    facts = {field: _FIELDS[field][1](values) for field, values in found.items()}
    if facts.get("k") == 0:
        facts.pop("speculative_method", None)
    return LogFacts(**facts | _moe_backends(lines))


def _moe_backends(lines: Iterable[LogLine]) -> dict[str, str]:
    """Read the MoE backend of the model and of its drafter, which choose apart.

    The drafter's line is the one behind "Loading drafter model" of the same process, or else the second one.
    """
    drafting: set[str] = set()
    chosen: dict[str, str] = {}
    for line in lines:
        if _DRAFTER.match(line.body):
            drafting.add(line.speaker)
        elif match := _MOE.match(line.body):
            owner = "draft_" if line.speaker in drafting else ""
            chosen |= {
                f"{owner}moe_backend": match["backend"],
                f"{owner}moe_quantization": match["quantization"],
            }
            if line.speaker:
                drafting.add(line.speaker)
    return chosen


def is_ready_line(line: str) -> bool:
    """Say whether a line announces that the server listens: a hint only, the socket answers later."""
    return any(_READY.match(found.body) for found in log_lines(line))


def jit_kernels(text: str, start: int = 0) -> tuple[str, ...]:
    """Return the kernels that were compiled during inference, from the character offset ``start`` on.

    A warm-up is not over while this is not empty; a line inside a measured window makes its samples cold.
    """
    found = (_JIT.match(line.body) for line in log_lines(text[start:]))
    return tuple(match["kernel"] for match in found if match)


def spec_decoding_intervals(text: str) -> list[SpecDecodingInterval]:
    """Return the SpecDecoding lines in order; fields are read by name, since their order changed often."""
    intervals = []
    for line in log_lines(text):
        if match := _SPEC.match(line.body):
            interval = _interval(_named_values(match["values"]), cumulative=match["now"] is None)
            intervals += [] if interval is None else [interval]
    return intervals


def stats_lines(text: str) -> list[StatsLine]:
    """Return the throughput lines in order; ratios are 0 to 1 although the log prints percentages."""
    found = ((_STATS.match(line.body)) for line in log_lines(text))
    return [_stats(match["engine"] or "", _named_values(match["values"])) for match in found if match]


def _named_values(text: str) -> dict[str, str]:
    return {match["name"]: match["value"] for match in _NAMED_VALUE.finditer(text)}


def _interval(values: Mapping[str, str], *, cumulative: bool) -> SpecDecodingInterval | None:
    accepted = _count(values, "Accepted", "Number of accepted tokens")
    drafted = _count(values, "Drafted", "Number of draft tokens")
    if accepted is None or drafted is None:
        return None
    positions = [_number(part) for part in values.get("Per-position acceptance rate", "").split(",")]
    return SpecDecodingInterval(
        accepted_tokens=accepted,
        draft_tokens=drafted,
        rate=_number(values.get("Avg Draft acceptance rate") or values.get("Draft acceptance rate")),
        length=_number(values.get("Mean acceptance length")),
        per_position=tuple(rate for rate in positions if rate is not None),
        draft_depth=_count(values, "Current speculative depth"),
        k=_count(values, "Number of speculative tokens"),
        cumulative=cumulative,
    )


def _stats(engine: str, values: Mapping[str, str]) -> StatsLine:
    usage = next((value for name, value in values.items() if name.endswith("KV cache usage")), None)
    return StatsLine(
        engine=engine,
        prompt_tok_s=_number(values.get("Avg prompt throughput")),
        generation_tok_s=_number(values.get("Avg generation throughput")),
        running=_count(values, "Running"),
        waiting=_count(values, "Waiting", "Pending"),
        kv_cache_ratio=_number(usage),
        prefix_hit_ratio=_number(values.get("Prefix cache hit rate")),
    )


def _count(values: Mapping[str, str], *names: str) -> int | None:
    number = next((_number(values[name]) for name in names if name in values), None)
    return None if number is None else int(number)


def _number(text: str | None) -> float | None:
    """Read the figure at the start of a value; a percentage becomes a ratio, ``nan%`` is missing."""
    match = _NUMBER.match((text or "").strip())
    if match is None:
        return None
    return float(match["number"] + ("e-2" if match["percent"] else ""))
