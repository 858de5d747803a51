"""``sparkperf baseline list|show|diff|prune|import|bootstrap``: what is kept, and its upkeep."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pytest_sparkperf.adapters.gitref import GitFiles
from pytest_sparkperf.adapters.machine import read_host
from pytest_sparkperf.adapters.nvidia_smi import NvidiaSmi
from pytest_sparkperf.adapters.store import (
    DEFAULT_FOLDER,
    Change,
    Files,
    FolderStore,
    baseline_path,
    load_file,
)
from pytest_sparkperf.cli.bootstrap import bootstrap
from pytest_sparkperf.cli.files import result_text
from pytest_sparkperf.core.baseline import ANCHOR_RECORDS, OWN, BaselineFile, Series, append_record
from pytest_sparkperf.core.baseline_report import diff_lines, list_lines, show_lines
from pytest_sparkperf.core.baseline_schema import to_document
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.hardware import Machine, declared_machine, seen_machine
from pytest_sparkperf.core.imports import Imported, read_results
from pytest_sparkperf.core.lookup import recorded
from pytest_sparkperf.core.targets import Hardware


def main(argv: Sequence[str]) -> int:
    """Run one of the commands and return its exit status: 0 fine, 1 finding, 2 usage."""
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    if rest and options.command is not _bootstrap:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.pytest_arguments = rest
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigError as error:
        print(f"sparkperf baseline: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--dir", type=Path, default=DEFAULT_FOLDER, help="folder of the baselines (default: %(default)s)"
    )
    parser = argparse.ArgumentParser(prog="sparkperf baseline", description="What is kept, and its upkeep.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, parents=[common], help=text, description=text)
        found.set_defaults(command=command)
        return found

    for name, command, text in (
        ("list", _list, "List what is kept, by machine."),
        ("show", _show, "Show one test's records, margins and facts."),
    ):
        one = add(name, command, text)
        one.add_argument("--ref", help="read from this git ref instead of the folder")
        one.add_argument("--json", action="store_true", help="print the files as JSON")
        one.add_argument("test", nargs="?" if name == "list" else None, help="a test's name, or part of it")
    diff = add("diff", _diff, "Say what changed in the folder since a git ref.")
    diff.add_argument("--ref", default="HEAD", help="compare with this git ref (default: %(default)s)")
    diff.add_argument("test", nargs="?", help="a test's name, or part of it")
    prune = add("prune", _prune, "Remove records; without --yes only say which.")
    prune.add_argument("--older-than", type=int, metavar="DAYS", help="series whose newest record is older")
    prune.add_argument("--imported", action="store_true", help="series imported from other tools")
    prune.add_argument("--hardware", metavar="SLUG", help="only of this machine")
    prune.add_argument("--yes", action="store_true", help="remove them")
    prune.add_argument("test", nargs="?", help="a test's name, or part of it")
    _add_import(add("import", _import, "Keep the result of another tool, marked as such."))
    first = add(
        "bootstrap", _bootstrap, "Record a first set: run a suite over and over, each on fresh servers."
    )
    first.usage = "sparkperf baseline bootstrap [--starts N] [PYTEST ARGUMENTS]"
    first.add_argument("--starts", type=int, default=ANCHOR_RECORDS, help="runs (default: %(default)s)")
    return parser


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="JSON of vllm bench serve, llama-benchy or pytest-benchmark")
    parser.add_argument("--test", required=True, help="the test, or baseline name, to keep it under")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--this-machine", action="store_true", help="it was measured on this machine")
    where.add_argument("--gpu", help="it was measured on a machine with this GPU, as nvidia-smi names it")
    parser.add_argument("--count", type=int, default=1, help="how many of these GPUs (default: %(default)s)")
    parser.add_argument("--memory-gib", type=float, help="that machine's memory")


# ---------------------------------------------------------------------- commands
def _list(options: argparse.Namespace) -> int:
    files, faults = _load(_files(options.dir, options.ref), options.test)
    if options.json:
        print(json.dumps({path: to_document(file) for path, file in files.items()}, indent=2))
        return _finding(faults)
    machine = ""
    for path, file in files.items():
        if path.partition("/")[0] != machine:
            machine = path.partition("/")[0]
            print(machine)
        for line in list_lines(file):
            print(f"  {line}")
    if not files and not faults:
        print(f"no baselines in {options.dir}")
    return _finding(faults)


def _show(options: argparse.Namespace) -> int:
    files, faults = _load(_files(options.dir, options.ref), options.test)
    if not files and not faults:
        raise ConfigError(
            f"no baseline is of a test like {options.test!r}; `sparkperf baseline list` lists them"
        )
    if options.json:
        print(json.dumps({path: to_document(file) for path, file in files.items()}, indent=2))
    else:
        print("\n\n".join("\n".join(show_lines(file)) for file in files.values()))
    return _finding(faults)


def _diff(options: argparse.Namespace) -> int:
    old, old_faults = _load(_files(options.dir, options.ref), options.test)
    new, new_faults = _load(FolderStore(options.dir), options.test)
    lines = [line for path in sorted({*old, *new}) for line in diff_lines(old.get(path), new.get(path))]
    print("\n".join(lines) if lines else f"no baseline differs from {options.ref}")
    return max(_finding([*old_faults, *new_faults]), 1 if lines else 0)


def _prune(options: argparse.Namespace) -> int:
    if not (options.test or options.hardware or options.imported or options.older_than is not None):
        raise ConfigError("say what to remove: a test, --hardware, --older-than or --imported")
    store = FolderStore(options.dir)
    files, faults = _load(store, options.test)
    removed = 0
    for path, file in files.items():
        gone = [series for series in file.series if _to_remove(path, series, options)]
        for series in gone:
            removed += 1
            word = "removed" if options.yes else "would remove"
            print(f"{word} {file.test} on {file.machine.slug}: {series.work.describe()}")
        if gone and options.yes:
            _remove(store, path, gone)
    if not removed:
        print("nothing to remove")
    elif not options.yes:
        print("nothing was removed; say --yes to remove these")
    return _finding(faults)


def _import(options: argparse.Namespace) -> int:
    machine = _machine(options)
    store = FolderStore(options.dir)
    empty = BaselineFile(options.test, machine)
    for found in read_results(result_text(options.file), str(options.file)):
        store.update(baseline_path(machine, options.test), _adding(empty, found))
        print(f"imported into {options.test} on {machine.slug}: {found.work.describe()}")
    print("imported figures are shown and never judged against")
    return 0


def _bootstrap(options: argparse.Namespace) -> int:
    arguments = options.pytest_arguments
    if options.dir != DEFAULT_FOLDER:
        arguments = [f"--sparkperf-baseline-dir={options.dir}", *arguments]
    return bootstrap(options.starts, arguments)


# ---------------------------------------------------------------------- parts
def _adding(empty: BaselineFile, found: Imported) -> Change:
    return lambda before: append_record(before, empty, found.work, found.record)


def _files(folder: Path, ref: str | None) -> Files:
    return FolderStore(folder) if ref is None else GitFiles(ref, folder.absolute(), Path.cwd())


def _load(files: Files, wanted: str | None) -> tuple[dict[str, BaselineFile], list[str]]:
    """Load the files of the wanted tests; what cannot be used is a fault and hides no other file."""
    found: dict[str, BaselineFile] = {}
    faults = []
    for path in files.paths():
        try:
            file = load_file(files, path)
        except ConfigError as error:
            faults.append(str(error))
            continue
        if file is not None and (wanted is None or wanted in file.test or wanted == path):
            found[path] = file
    return found, faults


def _finding(faults: Sequence[str]) -> int:
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _to_remove(path: str, series: Series, options: argparse.Namespace) -> bool:
    if options.hardware is not None and path.partition("/")[0] != options.hardware:
        return False
    if options.imported and series.work.source == OWN:
        return False
    if options.older_than is None:
        return True
    return bool(datetime.now(UTC) - recorded(series.newest) > timedelta(days=options.older_than))


def _remove(store: FolderStore, path: str, gone: Sequence[Series]) -> None:
    works = {series.work for series in gone}

    def without(before: BaselineFile | None) -> BaselineFile:
        assert before is not None, "a file is changed only after it was read"
        return replace(before, series=tuple(series for series in before.series if series.work not in works))

    if not store.update(path, without).series:
        store.remove(path)


def _machine(options: argparse.Namespace) -> Machine:
    if options.gpu is not None:
        if options.count < 1 or (options.memory_gib is not None and not options.memory_gib > 0):
            raise ConfigError("--count and --memory-gib take numbers above 0")
        return declared_machine(Hardware(options.gpu, options.count, options.memory_gib))
    host, gpus = read_host(), NvidiaSmi().read()
    if gpus.problem is not None and not gpus.absent:
        raise ConfigError(f"this machine cannot be told: {gpus.problem}; name its GPU by --gpu")
    return seen_machine(
        gpus.gpus,
        cpu=host.cpu,
        cores=host.cores,
        architecture=host.architecture,
        memory_kib=host.memory_kib,
        mig_profiles=gpus.mig_profiles,
    )
