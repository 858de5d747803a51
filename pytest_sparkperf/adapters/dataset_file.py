"""Reads the file of a dataset; a large one only once while it stays as it is."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from pytest_sparkperf.core.dataset import Dataset, parse_dataset
from pytest_sparkperf.core.errors import ConfigError


def read_dataset(path: Path) -> Dataset:
    """Return the prompts of a file; raises ConfigError with the line of what is wrong."""
    return _read(path, _age(path))[0]


def dataset_digest(path: Path) -> str:
    """Return what identifies a file's content, wherever it lies; raises ConfigError."""
    return _read(path, _age(path))[1]


def _age(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _read(path: Path, _age: tuple[int, int]) -> tuple[Dataset, str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path.name}:{line}: the text is not UTF-8; save the file as UTF-8") from None
    return parse_dataset(text, path.name), hashlib.sha256(data).hexdigest()


def _unreadable(path: Path, error: OSError) -> ConfigError:
    reason = (error.strerror or str(error)).lower()
    return ConfigError(f"dataset {path.name}: cannot be read: {reason} ({path}); name a readable file")
