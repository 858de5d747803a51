"""``sparkperf baseline bootstrap``: a first set of records, made by running a suite over and over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pytest_sparkperf.core.baseline import KEPT_RECORDS, MIN_RECORDS
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.planning import Collector, collect_gates, loading

_RECORD = ("--sparkperf", "--sparkperf-record")


def run_pytest(arguments: Sequence[str]) -> int:
    """Run pytest in a process of its own, its output on ours, and return its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *loading(), *arguments], stdin=subprocess.DEVNULL, check=False
    ).returncode


def bootstrap(
    starts: int,
    arguments: Sequence[str],
    *,
    collect: Callable[[Sequence[str]], Collector] = collect_gates,
    run: Callable[[Sequence[str]], int] = run_pytest,
) -> int:
    """Record ``starts`` runs of a suite and return 0, or 1 where one of them did not end well.

    Raises ConfigError for a suite that holds nothing to record, or whose servers are not started anew.
    """
    if not MIN_RECORDS <= starts <= KEPT_RECORDS:
        raise ConfigError(
            f"--starts {starts} is no first set: use {MIN_RECORDS}, the fewest that gates are judged by, to "
            f"{KEPT_RECORDS}, the most that are kept"
        )
    _check(collect(arguments))
    batch = f"bootstrap-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    failed = 0
    for number in range(1, starts + 1):
        print(f"run {number} of {starts}", flush=True)
        status = run([*_RECORD, f"--sparkperf-record-batch={batch}", *arguments])
        if status:
            failed += 1
            print(f"run {number} of {starts} ended with status {status}", flush=True)
    print(
        f"{starts - failed} of {starts} runs ended well; they are of one day: the spread between days comes "
        "in with the runs of other days, each recorded by pytest --sparkperf --sparkperf-record"
    )
    return 1 if failed else 0


def _check(found: Collector) -> None:
    recorded = [gate for gate in found.gates if gate.spec.by_baseline]
    if not recorded:
        raise ConfigError(
            "none of these tests is judged by a baseline, so there is nothing to record; give one "
            "max_slowdown=0.05 without against="
        )
    for gate in recorded:
        for variant in gate.variants.values():
            if variant.launch == "attach":
                raise ConfigError(
                    f"{gate.test}: the server of target {variant.target!r} is attached to and would be the "
                    "same start each time, so records would not show how starts differ; use a target that is "
                    "started, such as launch: vllm, or restart the server between runs of pytest --sparkperf "
                    "--sparkperf-record"
                )
