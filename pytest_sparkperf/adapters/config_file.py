"""Reads sparkperf.yaml: strict YAML, every fault with its file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sparkperf.adapters.strict_yaml import Document, YamlError, load_yaml
from pytest_sparkperf.core.dataset import names_file
from pytest_sparkperf.core.document import document_faults, parse_config
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.faults import Fault
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Config, Target

_PATH_STARTS = ("./", "../", "~/")


def read_config(path: Path, *, shown_as: str | None = None) -> Config:
    """Read and check a file; paths in it become absolute, taken from its folder.

    Raises ConfigError with a line per fault, ``sparkperf.yaml:12: ...``; ``shown_as`` replaces that name.
    """
    name = shown_as or path.name
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{name}: cannot be read: {reason} ({path}); name a readable file") from error
    return parse_config_text(data, name, path.parent)


def parse_config_text(data: bytes, name: str, folder: Path) -> Config:
    """Read and check the text of a file that may come from elsewhere; ``name`` stands before each fault."""
    try:
        document = load_yaml(data)
    except YamlError as error:
        raise ConfigError(f"{name}:{error.line}: {error.text}") from error
    if document.value is None and not document.faults:
        raise ConfigError(f"{name}: the file is empty; write version: 1, then targets:")
    faults = sorted(
        [
            *document.faults,
            *((_line(document, fault), str(fault)) for fault in document_faults(document.value)),
        ],
        key=lambda fault: fault[0],
    )
    if faults:
        raise ConfigError("\n".join(f"{name}:{line}: {text}" for line, text in faults))
    config = parse_config(document.value)
    targets = {target: _rooted(keys, folder.resolve()) for target, keys in config.targets.items()}
    workloads = {name: _rooted_load(keys, folder.resolve()) for name, keys in config.workloads.items()}
    return replace(config, targets=targets, workloads=workloads)


def resolve_path(text: str, folder: Path) -> str:
    """Return a path that a user wrote as absolute, taken from ``folder``; other words stay as they are.

    A path starts with ``./``, ``../`` or ``~/``, or exists in the folder; ``nvidia/Qwen3`` is a model's name
    unless there is such a folder.
    """
    return _under(text, folder) if text.startswith(_PATH_STARTS) or _exists(folder / text) else text


def _under(text: str, folder: Path) -> str:
    # Links are left alone: a program of a virtual environment finds its packages by its unresolved path.
    return str(Path(text).expanduser() if text.startswith("~/") else folder / text)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a file's name, or in a folder we may not look into
        return False


def _line(document: Document, fault: Fault) -> int:
    """Return the line of the fault's place, or of the closest place around it that the file has."""
    path = fault.path
    while path not in document.lines and path:
        path = path[:-1]
    return document.lines.get(path, 1)


def _rooted_load(keys: FrozenMap, folder: Path) -> FrozenMap:
    return FrozenMap(
        {name: _under(value, folder) if names_file(name, value) else value for name, value in keys.items()}
    )


def _rooted(target: Target, folder: Path) -> Target:
    program = target.executable
    return replace(
        target,
        model=target.model and resolve_path(target.model, folder),
        # A bare word is a program on PATH, even beside a folder of that name.
        executable=_under(program, folder) if program and "/" in program else program,
        args=_rooted_options(target.args, folder),
        resident=_rooted_options(target.resident, folder),
        speculative=_rooted_options(target.speculative, folder),
        recipe=target.recipe and _under(target.recipe, folder),
        mounts=tuple(_under(one, folder) if one.startswith(_PATH_STARTS) else one for one in target.mounts),
        commands=target.commands and replace(target.commands, folder=str(folder)),
    )


def _rooted_options(options: Mapping[str, Any], folder: Path) -> FrozenMap:
    """Resolve option values that are written as paths; a mere word is never looked up as a file."""
    return FrozenMap({name: _rooted_value(value, folder) for name, value in options.items()})


def _rooted_value(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return _under(value, folder) if value.startswith(_PATH_STARTS) else value
    if isinstance(value, Sequence):
        return [_rooted_value(item, folder) for item in value]
    return value
