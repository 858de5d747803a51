"""Measures single gates on simulators that run, as a marked test would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.order import SUBJECT, Arm
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.core.targets import Target, Traffic
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.bench import Bench
from pytest_sparkperf.experiment.starter import Starter

# Fast, but not so fast that other load on a test machine makes it unsteady.
QUICK = ("--slowdown", "0.3", "--jit-s", "0")
K3 = (*QUICK, "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}')
SHORT = {"prompt_tokens": 64, "output_tokens": 24, "max_rounds": 3}


def run_gate(
    folder: Path, url: str, *, reference: str | None = None, traffic: Traffic = "exclusive", **keywords: Any
) -> Result:
    """Measure a gate on the server at ``url``, or on it (B) and ``reference`` (A) in turn."""
    variants: dict[Arm, Variant] = {SUBJECT: _at("b", url, traffic)}
    if reference is not None:
        variants["A"] = _at("a", reference, traffic)
        keywords["against"] = "a"
    bench = Bench(expected=tuple(variants.values()), starter=Starter(lambda: folder), root=folder)
    try:
        return bench.measure(variants, parse_mark({**SHORT, **keywords}), gates=1)
    finally:
        bench.close()


def verdict(result: Result, gate: str) -> Verdict:
    """Return the verdict of a gate."""
    return next(one for one in result.verdicts if one.gate == gate)


def _at(name: str, url: str, traffic: Traffic) -> Variant:
    return make_variant(Target(name, "attach", urls=((None, url),), traffic=traffic))
