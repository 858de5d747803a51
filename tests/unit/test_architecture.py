"""Imports go one way: core <- adapters <- experiment <- pytest glue; importing the plugin costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_sparkperf

ROOT = Path(pytest_sparkperf.__file__).parent
# What each layer may import of the package. Modules at the top are the glue.
MAY_IMPORT = {
    "core": {"core"},
    "adapters": {"core", "adapters"},
    "experiment": {"core", "adapters", "experiment"},
    "sim": {"core", "sim"},
    # A composition root of its own; it collects a suite as pytest does, through the glue.
    "cli": {"core", "adapters", "experiment", "sim", "cli", "glue"},
    "glue": {"core", "adapters", "experiment", "glue"},
}
PURE_FORBIDDEN = {
    "asyncio", "httpx", "io", "os", "pathlib", "pytest", "random", "select", "shutil", "signal", "socket",
    "subprocess", "sys", "tempfile", "threading", "time", "yaml", "filelock",
}  # fmt: skip
HEAVY = (
    "httpx",
    "yaml",
    "filelock",
    "numpy",
    "asyncio",
    "pytest_sparkperf.adapters",
    "pytest_sparkperf.experiment",
)
LAZY_PLACES = {"fixtures.py", "session.py", "cli/__init__.py"}


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        layer = relative.parts[0] if len(relative.parts) > 1 else "glue"
        if relative.name == "__main__.py" and layer == "glue":
            layer = "cli"  # the console script by another name
        yield path, layer


def imported(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node
            if node.module == "pytest_sparkperf":
                for alias in node.names:
                    yield f"pytest_sparkperf.{alias.name}", node


def layer_of(name: str) -> str | None:
    first, _, rest = name.partition(".")
    if first != "pytest_sparkperf" or not rest:
        return None
    second = rest.partition(".")[0]
    return second if (ROOT / second).is_dir() else "glue"


@pytest.mark.parametrize(("path", "layer"), list(modules()), ids=lambda value: getattr(value, "name", value))
def test_module_imports_only_what_its_layer_may(path: Path, layer: str) -> None:
    tree = ast.parse(path.read_text())
    upward = [
        name
        for name, _ in imported(tree)
        if (to := layer_of(name)) is not None and to not in MAY_IMPORT[layer]
    ]

    assert upward == []


@pytest.mark.parametrize(
    "path", [path for path, layer in modules() if layer == "core"], ids=lambda path: path.name
)
def test_core_touches_nothing_outside(path: Path) -> None:
    names = {name.partition(".")[0] for name, _ in imported(ast.parse(path.read_text()))}

    assert names & PURE_FORBIDDEN == set()


def test_pytest_is_imported_by_the_glue_alone() -> None:
    users = {
        layer
        for path, layer in modules()
        for name, _ in imported(ast.parse(path.read_text()))
        if name.partition(".")[0] in ("pytest", "_pytest")
    }

    assert users == {"glue"}


def test_httpx_is_imported_in_one_place() -> None:
    users = [
        str(path.relative_to(ROOT))
        for path, _ in modules()
        if any(name.partition(".")[0] == "httpx" for name, _ in imported(ast.parse(path.read_text())))
    ]

    assert users == ["adapters/http.py"]


def test_own_modules_are_imported_inside_functions_only_where_the_layers_are_joined() -> None:
    places = set()
    for path, _ in modules():
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [name for statement in function.body for name, _ in imported(statement)]
                if any(name.startswith("pytest_sparkperf") for name in names):
                    places.add(str(path.relative_to(ROOT)))

    assert places <= LAZY_PLACES


def test_importing_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import pytest_sparkperf.plugin\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules and name not in before])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
