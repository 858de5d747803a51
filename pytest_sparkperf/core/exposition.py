"""Parses the Prometheus text of ``/metrics`` and subtracts two scrapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Labels = tuple[tuple[str, str], ...]
Series = Mapping[Labels, float | None]

# Present name -> what other releases and servers call the same thing, best first. A name that is present
# itself is never added to its alias: for some releases vLLM shows both (vllm pull request 29330).
ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "vllm:kv_cache_usage_perc": ("vllm:gpu_cache_usage_perc",),
        "vllm:prefix_cache_queries_total": ("vllm:gpu_prefix_cache_queries_total",),
        "vllm:prefix_cache_hits_total": ("vllm:gpu_prefix_cache_hits_total",),
        "vllm:inter_token_latency_seconds_sum": ("vllm:time_per_output_token_seconds_sum",),
        "vllm:inter_token_latency_seconds_count": ("vllm:time_per_output_token_seconds_count",),
        "vllm:generation_tokens_total": ("llamacpp:tokens_predicted_total",),
        "vllm:num_requests_running": ("llamacpp:requests_processing",),
        "vllm:num_requests_waiting": ("llamacpp:requests_deferred",),
    }
)
# llama.cpp copies the spec-decode schema of vLLM under its own prefix.
_PREFIX, _OTHER_PREFIXES = "vllm:", ("llamacpp:",)

# Only quotes end a label value: it may hold braces, commas and equals signs (a model's path, for one).
_SAMPLE = re.compile(
    r"[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*"
    r'(?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\]|\\.)*")*)\}[ \t]*|(?<=[ \t]))'
    r"(?P<value>[^ \t]+)"
    r"(?:[ \t]+-?[0-9.]+)?(?:[ \t]+#.*)?[ \t]*"  # a timestamp; an OpenMetrics exemplar
)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_A_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TYPE = re.compile(r"#[ \t]+TYPE[ \t]+(\S+)[ \t]+(\S+)")
_ESCAPE = re.compile(r'\\([\\n"])')
_UNESCAPED = {"\\": "\\", "n": "\n", '"': '"'}
_FAMILY_SUFFIX = re.compile(r"_(?:total|count|bucket|sum)$")


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples of one ``/metrics`` body.

    A value of None is a sample that was there but was NaN or infinite. ``types`` holds the TYPE comments,
    ``malformed`` counts lines that are neither sample, comment nor empty (a body that is no exposition at
    all, or was cut).
    """

    samples: Mapping[str, Series] = field(default_factory=lambda: MappingProxyType({}))
    types: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    malformed: int = 0

    def spelling(self, name: str) -> str | None:
        """Return the name under which this server shows ``name``: itself, else an alias; None when absent."""
        return next((known for known in _spellings(name) if known in self.samples), None)

    def series(self, name: str) -> Series:
        """Return each label set of a metric with its value; empty when absent."""
        spelling = self.spelling(name)
        return {} if spelling is None else self.samples[spelling]

    def total(self, name: str) -> float | None:
        """Return the sum over all label sets (all engines, all model names) of exactly this sample name.

        None when the name is absent or one of the values is missing: a sum over the rest would be too low.
        """
        return _sum(list(self.series(name).values()))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the sums of a metric by the value of one label, without values that are missing."""
        return _group(self.series(name), label)

    def values(self, name: str) -> tuple[float, ...]:
        """Return the values one by one, for gauges that must not be added (``kv_cache_usage_perc``)."""
        return tuple(value for value in self.series(name).values() if value is not None)

    def is_counter(self, name: str) -> bool:
        """Say whether a sample only ever grows, by its TYPE or, without one, by its name."""
        kind = self.types.get(name)
        if kind is not None:
            return kind == "counter"
        family = self.types.get(_FAMILY_SUFFIX.sub("", name))
        if family is not None:  # a histogram's sum falls when negative values are observed
            return family in {"counter", "histogram", "summary"} and not name.endswith(("_sum", "_created"))
        return name.endswith("_total")


@dataclass(frozen=True, slots=True)
class Delta:
    """What happened between two scrapes of one server.

    ``reset`` says how a restart was noticed; then every value is None, since the counts before it are lost.
    """

    before: Scrape
    after: Scrape
    reset: str | None = None

    @property
    def restarted(self) -> bool:
        """True when the counters do not continue those of the first scrape."""
        return self.reset is not None

    def series(self, name: str) -> Series:
        """Return the difference of each label set; a series that was not there before counts from 0."""
        spelling = self.after.spelling(name)
        if spelling is None or self.restarted or not self.before.samples:
            return {}
        earlier = self.before.samples.get(spelling, {})
        return {
            labels: _subtract(earlier.get(labels, 0.0), value)
            for labels, value in self.after.samples[spelling].items()
        }

    def total(self, name: str) -> float | None:
        """Return the growth of a metric over all label sets; None when absent, missing or reset."""
        return _sum(list(self.series(name).values()))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the growth of a metric by the value of one label, without values that are missing."""
        return _group(self.series(name), label)


def parse_exposition(text: str) -> Scrape:
    """Parse Prometheus text (format 0.0.4, and OpenMetrics as far as vLLM and its proxies send it).

    Never raises: lines that cannot be read are counted in ``malformed``. Of two samples with equal labels
    the later counts.
    """
    samples: dict[str, dict[Labels, float | None]] = {}
    types: dict[str, str] = {}
    malformed = 0
    for raw in text.split("\n"):  # not splitlines: a label value may hold U+2028 and its like
        line = raw.strip(" \t\r")
        if not line:
            continue
        if line.startswith("#"):
            if found := _TYPE.match(line):
                types[found[1]] = found[2]
            continue
        sample = _parse_sample(line)
        if sample is None:
            malformed += 1
        else:
            name, labels, value = sample
            samples.setdefault(name, {})[labels] = value
    frozen = {name: MappingProxyType(series) for name, series in samples.items()}
    return Scrape(MappingProxyType(frozen), MappingProxyType(types), malformed)


def difference(before: Scrape, after: Scrape) -> Delta:
    """Subtract two scrapes of one server, noticing when it restarted in between."""
    return Delta(before, after, _reset(before, after))


def _parse_sample(line: str) -> tuple[str, Labels, float | None] | None:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return None
    labels = _parse_labels(found["labels"] or "")
    if labels is None:
        return None
    if _NUMBER.fullmatch(found["value"]):
        value = float(found["value"])
        return found["name"], labels, value if abs(value) != float("inf") else None
    return (found["name"], labels, None) if _NOT_A_NUMBER.fullmatch(found["value"]) else None


def _parse_labels(text: str) -> Labels | None:
    labels, at = [], 0
    while text[at:].strip(" \t"):
        found = _LABEL.match(text, at)
        if found is None:
            return None
        labels.append((found[1], _ESCAPE.sub(lambda escape: _UNESCAPED[escape[1]], found[2])))
        at = found.end()
    return tuple(sorted(labels))


def _spellings(name: str) -> Iterator[str]:
    yield name
    yield from ALIASES.get(name, ())
    if name.startswith(_PREFIX):
        yield from (other + name.removeprefix(_PREFIX) for other in _OTHER_PREFIXES)


def _reset(before: Scrape, after: Scrape) -> str | None:
    """Return how a restart shows, or None.

    A start time that changed is proof. Servers with several API processes show neither start times nor
    ``_created`` (vllm pull request 22227); there a counter that fell or vanished is the only sign.
    """
    for name, series in before.samples.items():
        later = after.samples.get(name, {})
        if name == "process_start_time_seconds" or name.endswith("_created"):
            if any(labels in later and later[labels] != value for labels, value in series.items()):
                return f"{name} changed"
        elif after.samples and before.is_counter(name):
            if any(labels not in later for labels in series):
                return f"{name} lost a series"
            if any(_fell(value, later[labels]) for labels, value in series.items()):
                return f"{name} fell"
    return None


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _subtract(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _sum(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present and len(present) == len(values) else None


def _group(series: Series, label: str) -> dict[str, float]:
    groups: dict[str, list[float | None]] = {}
    for labels, value in series.items():
        for name, wanted in labels:
            if name == label:
                groups.setdefault(wanted, []).append(value)
    sums = {key: _sum(values) for key, values in groups.items()}
    return {key: total for key, total in sums.items() if total is not None}
