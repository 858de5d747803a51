"""``sparkperf metrics BEFORE [AFTER]``: acceptance and tokens between two saved bodies of /metrics."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_sparkperf.core.exposition import Scrape, parse_exposition
from pytest_sparkperf.core.metrics_report import metrics_facts, metrics_fault, metrics_lines


def main(argv: Sequence[str]) -> int:
    """Print the facts and return the exit status: 0 fine, 1 nothing to tell or nothing accepted, 2 usage."""
    parser = argparse.ArgumentParser(
        prog="sparkperf metrics",
        description="Read saved bodies of a vLLM server's /metrics: one counts since the server's start, two "
        "what happened between them.",
    )
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a saved body of /metrics")
    parser.add_argument("after", type=Path, metavar="AFTER", nargs="?", help="a later one of the same server")
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON object")
    options = parser.parse_args(argv)
    scrapes: list[Scrape] = []
    for path in (options.before, options.after):
        if path is None:
            continue
        try:
            scrapes.append(parse_exposition(path.read_text("utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            text = f"{path}: cannot be read: {reason}; save a body with: curl -s URL/metrics > FILE"
            print(f"sparkperf metrics: {text}", file=sys.stderr)
            return 2
    facts = metrics_facts(scrapes[0] if len(scrapes) > 1 else None, scrapes[-1])
    print(json.dumps(facts, indent=2) if options.json else "\n".join(metrics_lines(facts)))
    fault = metrics_fault(facts)
    if fault is not None:
        print(f"sparkperf metrics: {fault}", file=sys.stderr)
    return 0 if fault is None else 1
