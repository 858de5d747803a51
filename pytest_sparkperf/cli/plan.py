"""``sparkperf plan``: what a suite will cost and what it can decide, before anything runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_sparkperf.adapters.calibration_file import DEFAULT_FOLDER, read_calibration
from pytest_sparkperf.core.constants import ASSUMED
from pytest_sparkperf.core.errors import ConfigError, SparkPerfError
from pytest_sparkperf.core.plan import Rates, as_document, plan_lines, plan_suite
from pytest_sparkperf.core.targets import MAX_RESIDENT
from pytest_sparkperf.planning import collect_gates


def main(argv: Sequence[str]) -> int:
    """Print the plan and return 0; 2 where the suite cannot be collected."""
    options, pytest_arguments = _parser().parse_known_args(argv)
    try:
        rates = _rates(options)
        constants = ASSUMED
        if options.key is not None:
            calibration = read_calibration(options.folder, options.key)
            if calibration is None:
                raise ConfigError(
                    f"there is no calibration of {options.key!r} in {options.folder}: run sparkperf "
                    "calibrate there, or leave --key out for assumed constants"
                )
            constants = calibration.constants()
        found = collect_gates(pytest_arguments)
    except SparkPerfError as error:
        print(f"sparkperf plan: {error}", file=sys.stderr)
        return 2
    plan = plan_suite(
        found.gates, rates=rates, constants=constants, max_resident=found.max_resident or MAX_RESIDENT
    )
    print(json.dumps(as_document(plan), indent=2) if options.json else "\n".join(plan_lines(plan)))
    return 0


def _parser() -> argparse.ArgumentParser:
    rates = Rates()
    parser = argparse.ArgumentParser(
        prog="sparkperf plan",
        usage="sparkperf plan [OPTIONS] [PYTEST ARGUMENTS]",
        description="Collect the gates that pytest would run with these arguments and say what they cost and "
        "what they can decide. Starts nothing.",
        allow_abbrev=False,
    )
    for name, default, what in (
        ("--decode-tok-s", rates.decode_tok_s, "decode rate of one stream"),
        ("--prefill-tok-s", rates.prefill_tok_s, "prefill rate"),
        ("--start-s", rates.start_s, "time of one start"),
    ):
        parser.add_argument(
            name, type=float, default=default, metavar="X", help=f"{what} (default: %(default)s)"
        )
    parser.add_argument("--key", metavar="KEY", help="use the calibration of this hardware key")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="of calibrations")
    parser.add_argument("--json", action="store_true", help="print it as one JSON object")
    return parser


def _rates(options: argparse.Namespace) -> Rates:
    rates = Rates(options.decode_tok_s, options.prefill_tok_s, options.start_s)
    if not (rates.decode_tok_s > 0 and rates.prefill_tok_s > 0 and rates.start_s >= 0):
        raise ConfigError(
            f"--decode-tok-s {rates.decode_tok_s:g}, --prefill-tok-s {rates.prefill_tok_s:g} and --start-s "
            f"{rates.start_s:g} give no minutes: use rates above 0"
        )
    return rates
