"""sparkperf.yaml and test files as a git ref holds them, and what the working tree changed about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pytest_sparkperf.adapters.config_file import parse_config_text
from pytest_sparkperf.adapters.gitref import GitFiles
from pytest_sparkperf.adapters.store import read_bounded
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.mark_source import changed_keywords, marks_in
from pytest_sparkperf.core.targets import Config

_Marks = Mapping[str, Mapping[str, str]]


class FilesAtRef:
    """Files of a suite as one commit holds them; raises ConfigError where the ref cannot be had."""

    def __init__(self, ref: str, root: Path) -> None:
        self._ref = ref
        self._root = root
        self._files = GitFiles(ref, root, root)

    def config(self, path: Path) -> Config:
        """Read a file of the ref as if it lay where the working tree has it; raises ConfigError."""
        data = self._read(path)
        if data is None:
            raise ConfigError(
                f"{self._ref} has no {self._relative(path)}; commit it there first, name another file by "
                "--sparkperf-config, or leave out the ref"
            )
        return parse_config_text(data, f"{self._ref}:{self._relative(path)}", path.parent)

    def config_changes(self, path: Path) -> list[str]:
        """Say whether the working tree has another text, which is not used."""
        if read_bounded(path) == self._read(path):
            return []
        return [f"{self._relative(path)}: the working tree has another text, which is not used"]

    def mark_changes(self, tests: Mapping[str, tuple[Path, str]]) -> list[str]:
        """Say of each test how its mark differs; ``tests``: file and name within it, by the name shown."""
        known: dict[Path, tuple[_Marks, _Marks]] = {}
        lines: dict[str, None] = {}
        for path, name in tests.values():
            if path not in known:
                known[path] = _marks(self._read(path)), _marks(read_bounded(path))
            found = changed_keywords(*known[path], name, self._ref)
            lines |= dict.fromkeys(f"{self._relative(path)}::{name}: {text}" for text in found)
        return list(lines)

    def _read(self, path: Path) -> bytes | None:
        relative = self._relative(path)
        if relative.startswith("../"):
            raise ConfigError(
                f"{str(path)!r} is outside {str(self._root)!r}, so no git ref of that repository holds it"
            )
        return self._files.read(relative)

    def _relative(self, path: Path) -> str:
        return Path(os.path.relpath(path, self._root)).as_posix()


def _marks(data: bytes | None) -> _Marks:
    """Return the marks of a file; none where there is no file, or none that can be read."""
    return (marks_in(data.decode("utf-8", "replace")) or {}) if data is not None else {}
