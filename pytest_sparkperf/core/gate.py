"""What one marked test asks for: its keywords as frozen values, and every fault of a mark in words."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.expect import expectation_form_faults
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.keywords import (
    COMPARABLE,
    COMPARISONS,
    ITL_PERCENTILES,
    KEYWORDS,
    Keyword,
    valid_keywords,
)
from pytest_sparkperf.core.kinds import COUNT, POSITIVE, did_you_mean, environment_text, shortened
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.load_words import expanded, load_faults, make_load, workload_faults
from pytest_sparkperf.core.vllm_options import named_options, option_faults

# Request fields that make a measurement what it is; each with the keyword that sets it, where there is one.
_OWN_FIELDS: Mapping[str, str | None] = {
    "model": "model",
    "max_tokens": "output_tokens",
    "max_completion_tokens": "output_tokens",
    "temperature": "sampling",
    "messages": None,
    "prompt": None,
    "stream": None,
    "stream_options": None,
    "n": None,
}
# Metrics of limits that are counted or read once, not sampled in rounds.
UNSAMPLED = ("error_rate", "memory_gib", "kv_cache_tokens")
_VALID = "valid keywords are"
_NEED_AGAINST = ("min_speedup", "same_output", "max_kv_loss")
_COMPARES_NOTHING = "against compares nothing by itself; say what must hold, such as min_speedup=1.25"
_NEED_TWO_TOKENS = ("min_decode", "max_tpot_ms")
_ACCEPTANCE = ("min_acceptance_rate", "min_acceptance_length")


Workloads = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: the keyword (``min_decode``), the metric it judges (``decode_tok_s``) and its bound.

    With a ``quantile`` (0 to 1) it is about that share of the requests.
    """

    gate: str
    metric: str
    bound: float
    quantile: float | None = None

    @property
    def is_floor(self) -> bool:
        """Tell whether the metric must be at least the bound (else: at most)."""
        return self.gate.startswith("min_")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One limit of a comparison: ``max_slowdown`` or ``min_speedup``, and the share or factor it demands.

    ``metric`` None stands for what the load is mainly about: the decode rate of one stream, or the output
    rate of several. ``gate`` names the metric too where the mark did.
    """

    gate: str
    metric: str | None
    bound: float


@dataclass(frozen=True, slots=True)
class GateSpec:
    """One gate: which variant, under which load, against which limits, within which budget.

    ``args`` and ``env`` may hold None, which removes the target's entry. ``limits`` is empty for a mark that
    only measures; ``max_error_rate`` applies to it too. ``against`` holds the variant keywords of the server
    that is compared with, where they differ from the gate's own.
    """

    target: str | None = None
    k: int | None = None
    args: FrozenMap = field(default=EMPTY, repr=False)
    env: FrozenMap = field(default=EMPTY, repr=False)
    model: str | None = None
    image: str | None = None
    executable: str | None = None
    load: Load = field(default_factory=Load)
    limits: tuple[Limit, ...] = ()
    against: FrozenMap | None = None
    comparisons: tuple[Comparison, ...] = ()
    same_output: bool = False
    output_options: FrozenMap = EMPTY
    max_kv_loss: float | None = None
    expect: FrozenMap = EMPTY
    max_error_rate: float = 0.0
    max_rounds: int = 12
    budget_s: float = 600.0
    tolerance: float = 0.0
    name: str | None = None

    @property
    def server_words(self) -> Hashable:
        """The keywords that decide which server is used; gates with equal ones share it."""
        return (self.target, self.k, self.args, self.env, self.model, self.image, self.executable)

    @property
    def variant_words(self) -> Mapping[str, Any]:
        """The keywords that say which server, where they were given."""
        names = ("target", "k", "args", "env", "model", "image", "executable")
        return {name: value for name in names if (value := getattr(self, name)) not in (None, EMPTY)}

    @property
    def by_baseline(self) -> tuple[Comparison, ...]:
        """The comparisons with stored runs: a slowdown where no server is named to compare with."""
        return self.comparisons if self.against is None else ()

    def reference(self) -> GateSpec:
        """Return the gate whose server this one is compared with; raises ValueError without ``against``."""
        if self.against is None:
            raise ValueError("this gate compares with no other server")
        changes = dict(self.against)
        for name in ("args", "env"):
            if name in changes:
                changes[name] = FrozenMap(changes[name])
        alone = replace(self, against=None, comparisons=(), max_kv_loss=None, limits=())
        return replace(alone, **changes, same_output=False, output_options=EMPTY)


class MarkError(ConfigError):
    """A mark cannot be used; ``faults`` holds everything that is wrong with it, the text one a line."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def merge_marks(marks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge marks per keyword, given the closest first; the closest wins.

    A value replaces the farther one whole, dicts too; None takes a farther mark's keyword back.
    """
    merged: dict[str, Any] = {}
    for keywords in reversed(marks):
        merged.update(keywords)
    return merged


def parse_mark(keywords: Mapping[str, Any], workloads: Workloads = EMPTY) -> GateSpec:
    """Read the keywords of a mark; None is a keyword not given. Raises MarkError with every fault.

    ``workloads`` are those that it may name, by name, as keywords of a load.
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    return _checked(given, workloads, lambda _: True)


def _checked(given: Mapping[str, Any], workloads: Workloads, counts: Callable[[str], bool]) -> GateSpec:
    """Read keywords; raises MarkError with the faults that count."""
    load_words = [name for name, word in KEYWORDS.items() if word.group == "load"]
    words = expanded(given, workloads)
    found = [*_faults(words), *workload_faults(given, workloads, load_words)]
    # The list of what is valid comes last.
    faults = tuple(sorted(filter(counts, found), key=lambda fault: fault.startswith(_VALID)))
    if faults:
        raise MarkError(faults)
    return _spec(words)


def _spec(given: Mapping[str, Any]) -> GateSpec:
    """Build a gate from keywords that have no fault."""
    load = {name: given[name] for name in given if KEYWORDS[name].group == "load"}
    rest = {name: given[name] for name in given if KEYWORDS[name].group in ("variant", "budget")}
    rest["args"] = FrozenMap(named_options(rest.get("args", {})))
    rest["env"] = FrozenMap(_environment(rest.get("env", {})))
    return GateSpec(
        **rest,
        load=make_load(load),
        limits=tuple(_limits(given)),
        against=_against(given.get("against")),
        comparisons=tuple(_comparisons(given)),
        same_output=bool(given.get("same_output", False)),
        output_options=_output_options(given.get("same_output")),
        max_kv_loss=given.get("max_kv_loss"),
        expect=FrozenMap(given.get("expect")),
        max_error_rate=float(given.get("max_error_rate", 0)),
    )


def parse_ab(
    a: Mapping[str, Any] | str | None,
    b: Mapping[str, Any] | str | None,
    keywords: Mapping[str, Any],
    base: GateSpec,
    workloads: Workloads = EMPTY,
) -> GateSpec:
    """Read an A/B of a test's body: what A and B are, and the mark's other keywords for both.

    Left out, B is the server of ``base`` and A the one that it is compared with. Raises MarkError.
    """
    words = dict(base.variant_words) if b is None else {"target": b} if isinstance(b, str) else dict(b)
    against = base.against if a is None else a
    if against is None:
        raise MarkError(
            ("sparkperf_ab needs a=..., the server to compare with (or a mark that has against=...)",)
        )
    given = {
        name: value for name, value in {**words, **keywords, "against": against}.items() if value is not None
    }
    return _checked(given, workloads, lambda fault: fault != _COMPARES_NOTHING)


def metric_of_gate(gate: str) -> str | None:
    """Return the metric that a limit judges; None for keywords that judge none."""
    return KEYWORDS[gate].metric if gate in KEYWORDS else None


def _limits(given: Mapping[str, Any]) -> Iterator[Limit]:
    for name, value in given.items():
        word = KEYWORDS[name]
        if word.group == "limits" and word.metric is not None:
            yield Limit(name, word.metric, float(value), word.quantile)


def _comparisons(given: Mapping[str, Any]) -> Iterator[Comparison]:
    for name in COMPARISONS:
        value = given.get(name)
        if isinstance(value, Mapping):
            yield from (
                Comparison(f"{name}[{metric}]", metric, float(bound)) for metric, bound in value.items()
            )
        elif value is not None:
            yield Comparison(name, None, float(value))


def _output_options(value: Any) -> FrozenMap:
    """Return how outputs are compared, where a mark says more than that they must be equal."""
    return FrozenMap(value) if isinstance(value, Mapping) else EMPTY


def _against(value: Any) -> FrozenMap | None:
    """Return the variant keywords that differ; a text names a target."""
    if value is None:
        return None
    words: dict[str, Any] = {"target": value} if isinstance(value, str) else dict(value)
    if "args" in words:
        words["args"] = named_options(words["args"] or {})
    if "env" in words:
        words["env"] = _environment(words["env"] or {})
    return FrozenMap(words)


def _environment(env: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else environment_text(value) for name, value in env.items()}


def _faults(given: Mapping[str, Any]) -> Iterator[str]:
    for name in ITL_PERCENTILES:
        if name in given:
            yield (
                f"{name}: gaps within one stream are not independent, so no interval holds for them; limit "
                f"{name.replace('itl', 'tpot')} or max_itl_ms"
            )
    unknown = [name for name in given if name not in KEYWORDS and name not in ITL_PERCENTILES]
    for name in unknown:
        yield f"{name} is not a keyword of the sparkperf mark{did_you_mean(name, KEYWORDS)}"
    for name, value in given.items():
        if name in KEYWORDS:
            yield from _keyword_faults(KEYWORDS[name], value)
    yield from _contradictions(given)
    if unknown:
        yield f"{_VALID} {valid_keywords()}"


def _keyword_faults(word: Keyword, value: Any) -> Iterator[str]:
    if not word.kind.accepts(value):
        # Values of environment variables may be secret.
        seen = "env" if word.name == "env" else f"{word.name}={shortened(repr(value))}"
        yield f"{seen} is not {word.kind.says}; give {word.gives}, such as {word.name}={word.example}"
    elif word.name == "args":
        yield from (f"args: {key} {text}" for key, text in option_faults(value))
    elif word.name == "expect":
        yield from expectation_form_faults(value)
    elif word.name == "body":
        yield from _body_faults(value)
    elif word.name == "against":
        yield from _against_faults(value)
    elif word.name in COMPARISONS:
        yield from _comparison_faults(word.name, value)


def _body_faults(body: Mapping[str, Any]) -> Iterator[str]:
    for name in body:
        if name in _OWN_FIELDS:
            keyword = _OWN_FIELDS[name]
            way_out = f"use the keyword {keyword}" if keyword else "leave it out"
            yield f"body: {name} is set by the measurement itself; {way_out}"


def _against_faults(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        return
    words = [name for name, word in KEYWORDS.items() if word.group == "variant"]
    for name, one in value.items():
        if name not in words:
            near = did_you_mean(name, words) or ";"
            yield f"against: {name} is not a keyword of a variant{near} valid are {', '.join(words)}"
        elif one is not None:
            yield from (f"against: {fault}" for fault in _keyword_faults(KEYWORDS[name], one))


def _comparison_faults(name: str, value: Any) -> Iterator[str]:
    for metric in value if isinstance(value, Mapping) else ():
        if metric == "itl_ms":
            yield f"{name}: itl_ms cannot be compared, as a chunk holds several tokens with MTP; use tpot_ms"
        elif metric not in COMPARABLE:
            near = did_you_mean(metric, COMPARABLE) or ";"
            yield f"{name}: {metric} is not a metric to compare{near} valid are {', '.join(COMPARABLE)}"


def _contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    for name in _NEED_AGAINST:
        if name in given and given[name] is not False and "against" not in given:
            yield f'{name} needs against: say what to compare with, such as against={{"k": 0}}'
    compared = any(name in given for name in (*COMPARISONS, "max_kv_loss")) or given.get("same_output")
    if "against" in given and not compared:
        yield _COMPARES_NOTHING
    yield from load_faults(given)
    yield from _run_contradictions(given)
    yield from _acceptance_contradictions(given)
    if given.get("output_tokens") == 1:
        for name in _NEED_TWO_TOKENS:
            if name in given:
                yield f"{name} needs output_tokens of 2 or more: one token has no decode rate"


def _run_contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    if "min_goodput" in given and "slo" not in given:
        yield 'min_goodput needs slo: the limits that a request must meet, such as slo={"ttft_ms": 500}'
    if "requests" not in given:
        return
    for name in ("against", "max_slowdown"):
        if name in given:
            yield f"{name} compares bursts in rounds, not runs of many requests; leave requests out"
    for name in _ACCEPTANCE:
        if name in given:
            yield f"{name} is counted around rounds, not within a run of many requests; leave requests out"


def _acceptance_contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    k, length = given.get("k"), given.get("min_acceptance_length")
    for name in _ACCEPTANCE:
        if name in given and k == 0:
            yield f"{name} needs draft tokens, and k=0 drafts none; leave one of them out"
        if name in given and given.get("dataset") == "random":
            yield (
                f"{name} says nothing about dataset='random', as no draft predicts random tokens as it does "
                "text; use the shipped prompts, or a dataset of real ones"
            )
    most = k + 1 if k is not None and COUNT.accepts(k) else None
    if most is not None and length is not None and POSITIVE.accepts(length) and length > most:
        yield f"min_acceptance_length={length!r} can never hold at k={k}, where a step yields {most} at most"
