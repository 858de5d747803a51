"""``sparkperf calibrate``: measure what verdicts rest on, by starting one server several times."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pytest_sparkperf.adapters.calibration_file import DEFAULT_FOLDER, write_calibration
from pytest_sparkperf.adapters.config_file import read_config
from pytest_sparkperf.adapters.machine import read_host
from pytest_sparkperf.adapters.nvidia_smi import NvidiaSmi
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.calibration import MIN_LAUNCHES, Calibration, calibration_lines
from pytest_sparkperf.core.calibration_schema import to_document
from pytest_sparkperf.core.errors import ConfigError, SparkPerfError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.lookup import Problem
from pytest_sparkperf.core.report import SIMULATED
from pytest_sparkperf.core.targets import SIMULATOR, Config, find_target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.baselines import identify
from pytest_sparkperf.experiment.calibrate import Job, Outside, run_calibration
from pytest_sparkperf.experiment.starter import Starter

_TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


Calibrate = Callable[[Job, Outside], tuple[Calibration, Server]]


def main(argv: Sequence[str], calibrate: Calibrate = run_calibration) -> int:
    """Calibrate, store the figures and return 0; 2 where that cannot be done."""
    options = _parser().parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="sparkperf-calibrate-") as logs:
            found, server, variant = _run(options, Path(logs), calibrate)
        key = options.key or _key(variant, server)
        path = write_calibration(options.folder, key, found)
    except SparkPerfError as error:
        print(f"sparkperf calibrate: {error}", file=sys.stderr)
        return 2
    if options.json:
        words = {"key": key, "file": str(path), "simulated": server.simulated}
        print(json.dumps(words | {"calibration": to_document(found)}, indent=2))
    else:
        print(
            "\n".join([*calibration_lines(found), *([SIMULATED] if server.simulated else []), f"-> {path}"])
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkperf calibrate",
        description="Start one server several times, measure every start alike, and store how far the starts "
        "lie apart, what rounds and requests scatter by, and the temperature at which the GPU settles.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: sparkperf.yaml here")
    parser.add_argument("--target", metavar="NAME", help="default: default_target of the file")
    parser.add_argument("-k", type=int, metavar="N", help="num_speculative_tokens, 0 for none")
    parser.add_argument("--starts", type=int, default=MIN_LAUNCHES, metavar="N", help="5 to 20 (default: 5)")
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="of each start (default: 6)")
    parser.add_argument(
        "--concurrency", type=int, default=1, metavar="N", help="streams at once (default: 1)"
    )
    parser.add_argument("--output-tokens", type=int, default=256, metavar="N", help="(default: 256)")
    parser.add_argument("--key", metavar="KEY", help="hardware key to store under (default: this machine's)")
    parser.add_argument(
        "--folder", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    return parser


def _run(
    options: argparse.Namespace, logs: Path, calibrate: Calibrate
) -> tuple[Calibration, Server, Variant]:
    variant = _variant(options)
    if options.concurrency < 1 or options.output_tokens < 2:
        raise ConfigError(
            f"--concurrency {options.concurrency} with --output-tokens {options.output_tokens} has no decode "
            "rate: use at least 1 stream and 2 tokens"
        )
    load = Load(concurrency=options.concurrency, output_tokens=options.output_tokens)
    starter = Starter(lambda: logs)
    outside = Outside(
        start=starter.start,
        now=lambda: datetime.now(UTC).strftime(_TIME_FORMAT),
        # A thermometer of this machine says nothing about a simulator.
        thermometer=(lambda: None) if variant.launch == "sim" else NvidiaSmi().temperature_c,
        say=lambda text: print(text, file=sys.stderr),
    )
    try:
        found, server = calibrate(Job(variant, options.starts, options.rounds, load), outside)
    finally:
        starter.close()
    return found, server, variant


def _variant(options: argparse.Namespace) -> Variant:
    path = options.config or Path("sparkperf.yaml")
    config = read_config(path) if options.config or path.is_file() else Config()
    name = options.target or config.default_target
    targets = {SIMULATOR.name: SIMULATOR, **config.targets} if name == SIMULATOR.name else config.targets
    return make_variant(find_target(targets, name), k=options.k)


def _key(variant: Variant, server: Server) -> str:
    found = identify(
        variant,
        simulated=server.simulated,
        on_cpu=server.facts.get("device") == "cpu",
        host=read_host(),
        gpus=NvidiaSmi().read(),
    )
    if isinstance(found, Problem):
        raise ConfigError(f"the calibration has no place: {found.text}; or name one with --key")
    return found.slug
