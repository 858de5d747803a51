"""``sparkperf render``: show what a target or a recipe would be started with, and start nothing."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_sparkperf.adapters.config_file import read_config
from pytest_sparkperf.adapters.rendering import RenderedLaunch, render_launch
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Target, find_target
from pytest_sparkperf.core.variant import Variant, beside_another, make_variant

_SUFFIXES = (".yaml", ".yml")
_PLAIN = {"true": True, "false": False, "null": None}


def main(argv: Sequence[str]) -> int:
    """Print the command and return the exit status: 0 fine, 2 it cannot be started as configured."""
    options = _parser().parse_args(argv)
    try:
        variant = _variant(options)
        found = render_launch(variant)
    except ConfigError as error:
        print(f"sparkperf render: {error}", file=sys.stderr)
        return 2
    if options.json:
        facts = {"argv": found.words, "env": found.env_names, "image": found.image, "notes": found.notes}
        print(json.dumps({"server": variant.describe(), "launch": variant.launch, **facts}, indent=2))
    else:
        print("\n".join(_lines(variant, found)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sparkperf render",
        description="Show the exact argument list and the names of the variables that a target of "
        "sparkperf.yaml, or a recipe's file, is started with. Secrets are hidden.",
    )
    parser.add_argument("what", metavar="TARGET-or-RECIPE", help="a target's name or a recipe's YAML file")
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: sparkperf.yaml here")
    parser.add_argument("-k", type=int, metavar="N", help="num_speculative_tokens, 0 for none")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="a vLLM option")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a recipe's placeholder"
    )
    parser.add_argument("--resident", action="store_true", help="as it runs beside another server")
    parser.add_argument("--json", action="store_true", help="print it as one JSON object")
    return parser


def _variant(options: argparse.Namespace) -> Variant:
    args, overrides = (dict(map(_pair, given)) for given in (options.arg, options.set))
    path = Path(options.what)
    if path.suffix in _SUFFIXES and path.is_file():
        target = Target(path.stem, "recipe", recipe=str(path), overrides=FrozenMap(overrides))
    else:
        config = read_config(options.config or Path("sparkperf.yaml"))
        target = find_target(config.targets, options.what)
        if overrides:
            raise ConfigError(
                f"--set fills in a recipe's file; target {target.name!r} has overrides: for that"
            )
    variant = make_variant(target, k=options.k, args=args)
    if target.launch == "attach":
        raise ConfigError(f"target {target.name!r} attaches to {variant.url}; nothing is started for it")
    return beside_another(variant) if options.resident else variant


def _pair(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is not NAME=VALUE; write for example max-num-seqs=32")
    if value in _PLAIN:
        return name, _PLAIN[value]
    return name, int(value) if value.lstrip("-").isdecimal() else value


def _lines(variant: Variant, found: RenderedLaunch) -> list[str]:
    """Return the command as one that a shell would take, an option a line."""
    shown: list[str] = []
    for word in map(shlex.quote, found.words):
        if word.startswith("-") or not shown:
            shown.append(word)
        else:
            shown[-1] += f" {word}"
    lines = [f"# {variant.describe()} (launch: {variant.launch})", " \\\n  ".join(shown)]
    if found.env_names:
        lines.append(f"# variables set: {', '.join(found.env_names)}")
    return [*lines, *(f"# note: {note}" for note in found.notes)]
