"""The built wheel holds what a user needs and nothing else; the CI script builds one and names it."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

import pytest_sparkperf

WHEEL = os.environ.get("SPARKPERF_WHEEL")
PYTHON = os.environ.get("SPARKPERF_WHEEL_PYTHON")
needs_wheel = pytest.mark.skipif(
    not (WHEEL and PYTHON), reason="needs a built wheel: set SPARKPERF_WHEEL and SPARKPERF_WHEEL_PYTHON"
)


@needs_wheel
def test_wheel_holds_every_module_and_nothing_but_the_package() -> None:
    package = Path(pytest_sparkperf.__file__).parent
    expected = {
        f"pytest_sparkperf/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    names = set(zipfile.ZipFile(str(WHEEL)).namelist())

    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "pytest_sparkperf/py.typed" in names


@needs_wheel
def test_installed_wheel_registers_plugin_and_console_script(tmp_path: Path) -> None:
    python = Path(str(PYTHON))
    listed = subprocess.run(
        [python, "-m", "pytest", "--help"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    script = subprocess.run(
        [python.with_name("sparkperf"), "--help"], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert "--sparkperf-url" in listed.stdout
    assert script.stdout.startswith("usage: sparkperf COMMAND")
