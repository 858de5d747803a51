"""``sparkperf plan``: what a suite will cost and what it can decide, before anything runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pytest_sparkperf.adapters.calibration_file import DEFAULT_FOLDER, read_calibration
from pytest_sparkperf.adapters.store import Files, load_file, machines_with
from pytest_sparkperf.core.baseline import file_name
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.errors import ConfigError, SparkPerfError
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE, declared_machine
from pytest_sparkperf.core.lookup import Problem, choose_by_k
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.plan import CollectedGate, Rates, as_document, plan_lines, plan_suite
from pytest_sparkperf.core.standard import baseline_claims
from pytest_sparkperf.core.targets import MAX_RESIDENT
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.planning import collect_gates


def main(argv: Sequence[str]) -> int:
    """Print the plan and return 0; 2 where the suite cannot be collected."""
    options, pytest_arguments = _parser().parse_known_args(argv)
    try:
        rates = _rates(options)
        found = collect_gates(pytest_arguments)
        gates = [_with_baselines(gate, found.baselines, options.key) for gate in found.gates]
        constants = _constants(options, stored=any(gate.machine for gate in gates))
    except SparkPerfError as error:
        print(f"sparkperf plan: {error}", file=sys.stderr)
        return 2
    plan = plan_suite(
        gates, rates=rates, constants=constants, max_resident=found.max_resident or MAX_RESIDENT
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
    parser.add_argument("--key", metavar="KEY", help="use calibration and stored runs of this machine")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="of calibrations")
    parser.add_argument("--json", action="store_true", help="print it as one JSON object")
    return parser


def _constants(options: argparse.Namespace, *, stored: bool) -> Constants:
    """Return what the chosen machine was calibrated to; assumed constants where it only has stored runs."""
    if options.key is None:
        return ASSUMED
    calibration = read_calibration(options.folder, options.key)
    if calibration is not None:
        return calibration.constants()
    if stored:
        return ASSUMED
    raise ConfigError(
        f"there is neither a calibration of {options.key!r} in {options.folder} nor a stored run of these "
        "gates: run sparkperf calibrate there, or leave --key out for assumed constants"
    )


def _with_baselines(gate: CollectedGate, files: Files | None, key: str | None) -> CollectedGate:
    """Add the runs stored of the chosen machine, or of the only one that has some."""
    metrics = [claim.metric for claim in baseline_claims(gate.spec)]
    if files is None or not metrics:
        return gate
    test = gate.spec.name or gate.test
    machines = _machines(files, test, gate.variants[SUBJECT])
    machine = key or (machines[0] if len(machines) == 1 else None)
    if machine is None:
        return gate
    file = load_file(files, f"{machine}/{file_name(test)}") if machine in machines else None
    if file is None:
        return replace(gate, problem=f"{machine} has none; record some there")
    found = choose_by_k(file, test, gate.variants[SUBJECT].k, metrics, datetime.now(UTC))
    if isinstance(found, Problem):
        return replace(gate, machine=machine, problem=found.text)
    return replace(gate, machine=machine, baselines=found.baselines)


def _machines(files: Files, test: str, variant: Variant) -> list[str]:
    """Return the machines that a gate's server may turn out to be on, of those that have runs of the test."""
    machines = machines_with(files, test)
    if variant.launch == "attach" and variant.hardware is None:
        return machines
    if variant.launch != "sim" and variant.hardware is not None:
        return [slug for slug in machines if slug == declared_machine(variant.hardware).slug]
    return [slug for slug in machines if (slug == SIMULATED_MACHINE.slug) == (variant.launch == "sim")]


def _rates(options: argparse.Namespace) -> Rates:
    rates = Rates(options.decode_tok_s, options.prefill_tok_s, options.start_s)
    if not (rates.decode_tok_s > 0 and rates.prefill_tok_s > 0 and rates.start_s >= 0):
        raise ConfigError(
            f"--decode-tok-s {rates.decode_tok_s:g}, --prefill-tok-s {rates.prefill_tok_s:g} and --start-s "
            f"{rates.start_s:g} give no minutes: use rates above 0"
        )
    return rates
