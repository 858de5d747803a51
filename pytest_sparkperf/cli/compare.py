"""``sparkperf compare A.json B.json``: two results of another tool beside each other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_sparkperf.cli.files import result_text
from pytest_sparkperf.core.baseline_report import compare_lines
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.imports import read_results


def main(argv: Sequence[str]) -> int:
    """Compare two files and return the exit status: 0 the same work, 1 not, 2 unreadable."""
    parser = argparse.ArgumentParser(
        prog="sparkperf compare",
        description="Compare two results of vllm bench serve, llama-benchy or pytest-benchmark, B against A.",
    )
    parser.add_argument("a", type=Path, metavar="A.json")
    parser.add_argument("b", type=Path, metavar="B.json")
    options = parser.parse_args(argv)
    try:
        first, second = (read_results(result_text(path), str(path)) for path in (options.a, options.b))
    except ConfigError as error:
        print(f"sparkperf compare: {error}", file=sys.stderr)
        return 2
    lines, alike = compare_lines(first, second)
    print("\n".join(lines))
    return 0 if alike else 1
