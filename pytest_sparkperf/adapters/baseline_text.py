"""Baseline files as text: read strictly and within bounds, written so that two versions differ readably."""

from __future__ import annotations

import re
from typing import Any

import yaml

from pytest_sparkperf.adapters.strict_yaml import Document, YamlError, load_yaml
from pytest_sparkperf.core.baseline import BaselineFile
from pytest_sparkperf.core.baseline_schema import NewerSchemaError, parse_baseline, to_document
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.faults import DocumentError, Fault

# A full file has some 60 KiB; reading 256 KiB of the worst YAML takes two or three seconds.
MAX_BYTES = 256 * 1024
_HEADER = (
    "# Written by pytest --sparkperf --sparkperf-record; `sparkperf baseline show` and `diff` explain it.\n"
)
# A text that looks like nothing else in YAML 1.1 or 1.2; all others are quoted.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+-]+)*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_FEW_FAULTS = 10


class CorruptBaselineError(ConfigError):
    """A baseline file cannot be used; the text names file and line of every fault."""


class NewerBaselineError(ConfigError):
    """A baseline file was written by a later version; the text names file and line."""


def read_baseline_text(data: bytes, name: str) -> BaselineFile:
    """Read a file's text; ``name`` stands before each fault.

    Raises CorruptBaselineError for what cannot be used, NewerBaselineError for a later schema.
    """
    if len(data) > MAX_BYTES:
        raise CorruptBaselineError(
            f"{name}:1: holds more than {MAX_BYTES // 1024} KiB, which is more than sparkperf ever writes; "
            "remove it, or take it from git again"
        )
    try:
        document = load_yaml(data)
        _refuse_aliases(data)
    except YamlError as error:
        raise CorruptBaselineError(f"{name}:{error.line}: {error.text}") from error
    if document.faults:
        raise CorruptBaselineError(_lines(name, sorted(document.faults)))
    try:
        return parse_baseline(document.value)
    except NewerSchemaError as error:
        raise NewerBaselineError(_lines(name, _placed(document, error.faults))) from error
    except DocumentError as error:
        raise CorruptBaselineError(_lines(name, _placed(document, error.faults))) from error


def baseline_text(file: BaselineFile) -> bytes:
    """Return the text of a file: keys in reading order, one value a line."""
    text = yaml.dump(
        to_document(file),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return (_HEADER + text).encode()


class _Dumper(yaml.SafeDumper):
    """Quotes every text that some reader of YAML could take for something else."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


def _represent_float(dumper: _Dumper, value: float) -> yaml.ScalarNode:
    whole = value.is_integer() and abs(value) < 1e6
    kind, text = ("int", f"{value:.0f}") if whole else ("float", repr(value))
    if "." not in text:
        text = text.replace("e", ".0e")  # YAML 1.1 knows no 1e-07
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", text)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(float, _represent_float)


def _refuse_aliases(data: bytes) -> None:
    """Refuse what only other programs write: a value that stands somewhere else."""
    if b"&" not in data and b"*" not in data:
        return
    for token in yaml.scan(data.decode("utf-8-sig"), Loader=yaml.SafeLoader):
        if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
            sign = "&" if isinstance(token, yaml.AnchorToken) else "*"
            raise YamlError(
                token.start_mark.line + 1,
                f"holds {sign}{token.value}, an anchor or alias, which sparkperf never writes; write the "
                "value out",
            )


def _placed(document: Document, faults: tuple[Fault, ...]) -> list[tuple[int, str]]:
    return sorted((_line(document, fault), str(fault)) for fault in faults)


def _line(document: Document, fault: Fault) -> int:
    """Return the line of the fault's place, or of the closest place around it that the file has."""
    path = fault.path
    while path not in document.lines and path:
        path = path[:-1]
    return document.lines.get(path, 1)


def _lines(name: str, faults: list[tuple[int, str]]) -> str:
    shown = [f"{name}:{line}: {text}" for line, text in faults[:_FEW_FAULTS]]
    return "\n".join(
        [*shown, f"and {len(faults) - _FEW_FAULTS} more"] if len(faults) > _FEW_FAULTS else shown
    )
