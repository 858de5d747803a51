"""Keeps calibrations in a folder, ``<hardware key>.yaml``, each written whole or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from pytest_sparkperf.adapters.store import read_bounded, write_whole
from pytest_sparkperf.adapters.strict_yaml import YamlError, load_yaml
from pytest_sparkperf.core.calibration import Calibration, with_plateaus_of
from pytest_sparkperf.core.calibration_schema import parse_calibration, to_document
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.faults import DocumentError

DEFAULT_FOLDER = Path(".sparkperf/calibration")
_HEADER = (
    "# Written by `sparkperf calibrate`: spreads are standard deviations on the log scale (0.01 is 1 %).\n"
)
_PLAIN = re.compile(r"[a-z]+_[a-z_]+|server|spreads|launches|rounds|workload")


def calibration_path(folder: Path, key: str) -> Path:
    """Return where the calibration of a machine is kept; ``key`` is its hardware slug."""
    return folder / f"{key}.yaml"


def read_calibration(folder: Path, key: str) -> Calibration | None:
    """Read the calibration of a machine; None where there is none.

    Raises ConfigError that names the file and every fault: constants that cannot be read are never guessed.
    """
    path = calibration_path(folder, key)
    data = read_bounded(path)
    if data is None:
        return None
    try:
        document = load_yaml(data)
    except YamlError as error:
        raise ConfigError(f"{path}:{error.line}: {error.text}") from error
    if document.faults:
        raise ConfigError("\n".join(f"{path}:{line}: {text}" for line, text in document.faults))
    try:
        return parse_calibration(document.value)
    except DocumentError as error:
        raise ConfigError("\n".join(f"{path}: {fault}" for fault in error.faults)) from error


def write_calibration(folder: Path, key: str, found: Calibration) -> Path:
    """Write the calibration of a machine over an earlier one, whose plateaus of other workloads are kept.

    Returns the file. Raises ConfigError where it cannot be written; then nothing was changed.
    """
    path = calibration_path(folder, key)
    try:
        before = read_calibration(folder, key)
    except ConfigError:
        before = None  # it is about to be replaced by a good one
    document = to_document(with_plateaus_of(found, before))
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, (_HEADER + text).encode())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"the calibration {path} cannot be written: {reason}; make room and the folder writable, or name "
            "another with --folder"
        ) from error
    return path


class _Dumper(yaml.SafeDumper):
    """Quotes every text but plain words: a digest such as 12e4 is a number to some readers of YAML."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
