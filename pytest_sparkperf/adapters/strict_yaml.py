"""Loads YAML the way people read it: only true and false are booleans, no key twice, no tags, lines kept.

PyYAML's safe loader follows YAML 1.1, where ``off`` is a boolean, ``2e-2`` a text, ``012`` is ten and
``1:30`` ninety. Here plain words follow the core schema of YAML 1.2, with one difference: a number with a
leading zero stays the text that was written, since readers disagree on its value.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

# Aliases can blow a short file up to any size; a real one has a few hundred values.
MAX_VALUES = 10_000
MAX_DEPTH = 20

_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_STANDARD = "tag:yaml.org,2002:"
_MERGE = _STANDARD + "merge"
_FLOAT_WORDS = {".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


class YamlError(Exception):
    """The text is not YAML we take; ``line`` counts from 1."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"{line}: {text}")
        self.line = line
        self.text = text


@dataclass(slots=True)
class Document:
    """A loaded text: its plain value, the line of each path of keys, and faults that loading got over."""

    value: Any = None
    lines: dict[tuple[Any, ...], int] = field(default_factory=dict)
    faults: list[tuple[int, str]] = field(default_factory=list)


def load_yaml(data: bytes) -> Document:
    """Load one document; raises YamlError where the text cannot be understood at all."""
    text = _decoded(data)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(line, f"the character {chr(error.character)!r} is not allowed; delete it") from error
    except yaml.MarkedYAMLError as error:
        raise _explained(error, text) from error
    except RecursionError as error:
        raise YamlError(1, _TOO_DEEP) from error
    builder = _Builder()
    if node is not None:
        builder.document.value = builder.build(node, ())
    return builder.document


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser with resolvers of its own."""


_Loader.yaml_implicit_resolvers = {}
_RESOLVERS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)
for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_STANDARD + _tag, re.compile(f"(?:{_pattern})\\Z"), _first)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(
            line, f"is not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        ) from error


def _explained(error: yaml.MarkedYAMLError, text: str) -> YamlError:
    """Say in our words what PyYAML found, at the line where it found it."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or "unknown"
    lines = text.splitlines()
    if line > len(lines) >= 1:
        line = len(lines)
    if "'\\t'" in problem or (lines and re.match(r" *\t", lines[line - 1])):
        return YamlError(line, "holds a tab where YAML takes blanks only; put blanks there")
    if "another document" in problem:
        return YamlError(line, "starts a second document; keep one, without a further ---")
    if "undefined alias" in problem:
        return YamlError(line, f"{problem.removeprefix('found ')}; define it by & above this line")
    begun = error.context_mark.line + 1 if error.context_mark else line
    within = f" {error.context}, which begins in line {begun}" if begun != line else ""
    return YamlError(line, f"is not valid YAML: {problem}{within}")


class _Builder:
    """Turns nodes into plain values, noting lines and faults on the way."""

    def __init__(self) -> None:
        self.document = Document()
        self._open: list[int] = []
        self._values = 0

    def build(self, node: yaml.Node, path: tuple[Any, ...]) -> Any:
        line = _line_of(node)
        self.document.lines.setdefault(path, line)
        self._values += 1
        if self._values > MAX_VALUES:
            raise YamlError(line, f"holds more than {MAX_VALUES} values once aliases are followed")
        if len(path) > MAX_DEPTH:
            raise YamlError(line, _TOO_DEEP)
        if id(node) in self._open:
            raise YamlError(line, "holds an alias of itself; write the values out")
        self._open.append(id(node))
        try:
            return self._built(node, path)
        finally:
            self._open.pop()

    def _built(self, node: yaml.Node, path: tuple[Any, ...]) -> Any:
        kind = node.tag.removeprefix(_STANDARD)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            try:
                return _scalar(kind, node.value)
            except ValueError:
                pass
        self._fault(
            node,
            path,
            f"has the tag {_tag_as_written(node.tag)}, which is not allowed; write the value without a tag",
        )
        return None

    def _mapping(self, node: yaml.MappingNode, path: tuple[Any, ...]) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        first_lines: dict[Any, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for source in self._sources(value_node, path):
                    merged = (self.build(source, path) or {}) | merged
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.build(key_node, (*path, ""))
            if not isinstance(key, Hashable):
                self._fault(key_node, path, "has a key that is a list or a mapping; keys are words")
                continue
            place = (*path, key)
            if key in first_lines:
                self._fault(key_node, place, f"is given twice, first in line {first_lines[key]}; keep one")
                continue
            first_lines[key] = _line_of(key_node)
            self.document.lines[place] = first_lines[key]
            own[key] = self.build(value_node, place)
        return own | {key: value for key, value in merged.items() if key not in own}

    def _sources(self, node: yaml.Node, path: tuple[Any, ...]) -> Iterator[yaml.MappingNode]:
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(source, yaml.MappingNode):
                yield source
            else:
                self._fault(source, path, "<< takes a mapping or a list of mappings, as in <<: *base")

    def _fault(self, node: yaml.Node, path: tuple[Any, ...], text: str) -> None:
        place = ".".join(map(str, path))
        self.document.faults.append((_line_of(node), f"{place}: {text}" if place else text))


def _line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _tag_as_written(tag: str) -> str:
    return tag.replace(_STANDARD, "!!", 1)


def _scalar(kind: str, text: str) -> Any:
    """Return the value of a scalar; raises ValueError for a tag or a text that the tag does not fit."""
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "int":
        return int(text, 0) if text.lstrip("-+")[:2] in ("0o", "0x") else int(text)
    if kind == "float":
        return _FLOAT_WORDS[text] if text in _FLOAT_WORDS else float(text)
    raise ValueError(kind)
