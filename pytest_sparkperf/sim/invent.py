"""Invents JSON values that a schema allows: arguments of tool calls and structured answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from pytest_sparkperf.sim.patterns import matching_text
from pytest_sparkperf.sim.words import draw, word

# What a schema may hold; the last ones say nothing about the value.
_RULES = ("type", "properties", "required", "additionalProperties", "items", "enum", "const", "pattern")
_LIMITS = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")
_WORDS_ABOUT = ("title", "description", "default", "examples", "$schema", "format")
KEYWORDS = (*_RULES, *_LIMITS, *_WORDS_ABOUT)

_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
# Texts with these names are long ones.
_LONG_NAMES = frozenset({"content", "text", "body"})


def unknown_keyword(schema: object) -> str | None:
    """Return the first keyword or type of a schema that is not known here; None where all are."""
    if not isinstance(schema, Mapping):
        return f"{schema!r:.60}"
    for key, value in schema.items():
        if key not in KEYWORDS:
            return str(key)
        if key == "type" and any(kind not in _TYPES for kind in _kinds(schema)):
            return f"type {value!r:.60}"
    inner = [*_properties(schema).values(), *([schema["items"]] if "items" in schema else [])]
    return next((found for each in inner if (found := unknown_keyword(each)) is not None), None)


class Inventor:
    """Draws values that hang on a digest alone; what a schema says beyond KEYWORDS is passed over."""

    def __init__(self, digest: bytes, label: str) -> None:
        self._digest = digest
        self._label = label
        self._positions = count()

    def value(self, schema: object, name: str = "") -> object:
        """Return a value that the schema allows; ``name`` is that of the property it stands for."""
        described = schema if isinstance(schema, Mapping) else {}
        if "const" in described:
            return described["const"]
        options = described.get("enum")
        if isinstance(options, Sequence) and options:
            return options[self.number() % len(options)]
        kinds = _kinds(described)
        kind = kinds[0] if kinds else "object" if "properties" in described else "string"
        if kind in ("integer", "number"):
            return self._quantity(described)
        if kind == "array":
            return self._array(described, name)
        if kind == "object":
            return {key: self.value(inner, key) for key, inner in _properties(described).items()}
        if kind == "boolean":
            return self.number() % 2 == 0
        return None if kind == "null" else self._text(described, name)

    def number(self) -> int:
        """Return the next number."""
        return draw(self._digest, self._label, next(self._positions))

    def _word(self) -> str:
        return word(self._digest, self._label, next(self._positions))

    def _quantity(self, schema: Mapping[str, object]) -> int:
        low = _whole(schema, "minimum", 0)
        return low + self.number() % (_whole(schema, "maximum", low + 99) - low + 1)

    def _array(self, schema: Mapping[str, object], name: str) -> list[object]:
        if "items" not in schema:
            return []
        low = _whole(schema, "minItems", 1)
        high = _whole(schema, "maxItems", low + 1)
        return [self.value(schema["items"], name) for _ in range(low + self.number() % (high - low + 1))]

    def _text(self, schema: Mapping[str, object], name: str) -> str:
        pattern = schema.get("pattern")
        if isinstance(pattern, str):
            return matching_text(pattern.removeprefix("^").removesuffix("$"), self.number)
        text = self._named_text(name)
        while len(text) < _whole(schema, "minLength", 0):
            text += f" {self._word()}"
        return text[: _whole(schema, "maxLength", len(text))]

    def _named_text(self, name: str) -> str:
        if name in _LONG_NAMES:
            return self._long_text()
        if name == "date":
            return f"2031-{1 + self.number() % 12:02}-{1 + self.number() % 28:02}"
        if name == "time":
            return f"{self.number() % 24:02}:{self.number() % 60:02}"
        if name == "email":
            return f"{self._word()}@example.org"
        return self._word().capitalize()

    def _long_text(self) -> str:
        """Return some paragraphs with headings, quotes and line ends, which JSON must escape."""
        paragraphs = []
        for _ in range(4):
            sentence = " ".join(self._word() for _ in range(24))
            quoted = f'"{self._word()} {self._word()}"'
            paragraphs.append(f"# {self._word().capitalize()}\n\n{sentence} {quoted}.")
        return "\n\n".join(paragraphs)


def invent_arguments(digest: bytes, schema: Mapping[str, object], call: int = 0) -> str:
    """Return arguments as JSON text for the ``call``-th call of a function with these parameters."""
    label = "argument" if call == 0 else f"argument {call}"
    value = Inventor(digest, label).value(schema if "properties" in schema else {"type": "object"})
    return json.dumps(value, ensure_ascii=False)


def altered(arguments: str) -> str:
    """Return arguments in which the first text, else the first number, has another value."""
    value = json.loads(arguments)
    for holder, key, inner in _leaves(value):
        if isinstance(inner, str) and inner.istitle():
            holder[key] = inner + "s"
            return json.dumps(value, ensure_ascii=False)
    for holder, key, inner in _leaves(value):
        if isinstance(inner, int) and not isinstance(inner, bool):
            holder[key] = inner + 1
            return json.dumps(value, ensure_ascii=False)
    return arguments


def _leaves(value: object) -> Iterator[tuple[dict[object, object], object, object]]:
    """Yield every plain value that stands in an object: the object, its key, the value."""
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for key, inner in list(value.items()):
            if isinstance(inner, (dict, list)):
                yield from _leaves(inner)
            else:
                yield value, key, inner


def _kinds(schema: Mapping[str, object]) -> list[object]:
    kind = schema.get("type")
    return list(kind) if isinstance(kind, list) else [] if kind is None else [kind]


def _properties(schema: Mapping[str, object]) -> Mapping[str, object]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _whole(schema: Mapping[str, object], key: str, default: int) -> int:
    value = schema.get(key)
    return int(value) if isinstance(value, (int, float)) else default
