"""Reads a recipe's YAML the way its launchers do: leniently, a key given twice has its last value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.recipe import Recipe, parse_recipe


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; raises ConfigError when the file cannot be read or starts no server."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"recipe {str(path)!r} cannot be read: {reason}; name a recipe's YAML file"
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"recipe {str(path)!r} is not YAML: {problem}") from None
    recipe = parse_recipe(document, path.stem)
    twice = (f"{name} is given twice: its last value is used" for name in dict.fromkeys(_twice(node, "")))
    return replace(recipe, notes=(*recipe.notes, *twice))


def _twice(node: yaml.Node | None, prefix: str) -> Iterator[str]:
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if name in seen:
            yield name
        seen.add(name)
        yield from _twice(value, f"{name}.")
