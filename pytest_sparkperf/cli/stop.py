"""``sparkperf stop``: end what an earlier run left on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from pytest_sparkperf.adapters.cleanup import end_leftovers
from pytest_sparkperf.core.errors import SparkPerfError


def main(argv: Sequence[str]) -> int:
    """End leftovers and return the exit status: 0 nothing is left, 1 something would not go."""
    parser = argparse.ArgumentParser(
        prog="sparkperf stop",
        description="End servers and containers that runs of yours left: on purpose, with "
        "--sparkperf-keep-servers, or because they were killed together with their supervisors. What runs "
        "that are alive use, and what others started, is left alone.",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    options = parser.parse_args(argv)
    try:
        found = end_leftovers()
    except SparkPerfError as error:
        print(f"sparkperf stop: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"ended": found.ended, "left": found.left}, indent=2))
    else:
        for what in found.ended:
            print(f"ended {what}")
        if not found.ended and not found.left:
            print("nothing was left")
    for what in found.left:
        print(f"sparkperf stop: does not end: {what}", file=sys.stderr)
    return 1 if found.left else 0
