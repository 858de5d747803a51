"""``sparkperf facts LOG``: what a server's log says about the server."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_sparkperf.core.acceptance import pool_intervals
from pytest_sparkperf.core.logwarnings import log_warnings
from pytest_sparkperf.core.serverlog import find_fatal, jit_kernels, parse_log, spec_decoding_intervals


def main(argv: Sequence[str]) -> int:
    """Print the facts and return the exit status: 0 fine, 1 the server failed, 2 the log cannot be read."""
    parser = argparse.ArgumentParser(
        prog="sparkperf facts",
        description="Read facts, pooled acceptance and the cause of a failure from a vLLM server's log.",
    )
    parser.add_argument("log", type=Path, metavar="LOG", help="the server's output, of any vLLM release")
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON object")
    options = parser.parse_args(argv)
    try:
        text = options.log.read_text("utf-8", "replace")
    except OSError as error:
        print(f"sparkperf facts: {options.log}: cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    facts = log_facts(text)
    print(json.dumps(facts, indent=2) if options.json else "\n".join(_lines(facts)) or "no facts")
    fatal = find_fatal(text)
    if fatal is None:
        return 0
    advice = "" if fatal.advice is None else f" ({fatal.advice})"
    print(f"sparkperf facts: the server failed: {fatal.line}{advice}", file=sys.stderr)
    return 1


def log_facts(text: str) -> dict[str, Any]:
    """Return what a log says, by name; what it does not say is absent."""
    facts = {name: value for name, value in asdict(parse_log(text)).items() if value not in (None, (), False)}
    pooled = pool_intervals(spec_decoding_intervals(text))
    if pooled is not None:
        rates = {"acceptance_rate": pooled.rate, "acceptance_length": pooled.length}
        facts |= {name: round(value, 4) for name, value in rates.items() if value is not None}
        facts["draft_tokens"] = pooled.draft_tokens
    facts |= log_warnings(text)
    kernels = jit_kernels(text)
    if kernels:
        facts["jit_kernels"] = kernels
    return facts


def _lines(facts: dict[str, Any]) -> list[str]:
    width = max(map(len, facts), default=0)
    return [f"{name:<{width}}  {_shown(value)}" for name, value in facts.items()]


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
