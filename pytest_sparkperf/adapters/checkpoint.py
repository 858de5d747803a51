"""Looks at a model's files where it lies: in a folder, or in the cache of the Hugging Face hub."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pytest_sparkperf.core.active_weights import Tensor, gb_per_token
from pytest_sparkperf.core.checkpoint import (
    HEADER_LENGTH,
    INDEX,
    checkpoint_faults,
    expected_size,
    header_size,
    tensors_of,
)

_SHARD = ".safetensors"


def find_checkpoint(model: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of a model's files; None where this machine has none of it."""
    if Path(model).is_absolute():
        return Path(model) if Path(model).is_dir() else None
    snapshots = hub_cache(environ) / f"models--{model.replace('/', '--')}" / "snapshots"
    try:
        found = [path for path in snapshots.iterdir() if path.is_dir()]
    except OSError:
        return None
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def hub_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which the hub's client keeps models."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"])
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"


def read_faults(folder: Path) -> list[str]:
    """Return what is missing of a checkpoint; a link to a file that is not there counts as missing."""
    sizes: dict[str, int] = {}
    for path in sorted(folder.iterdir()):
        try:
            sizes[path.name] = path.stat().st_size
        except OSError:
            continue
    index = folder / INDEX
    text = index.read_text("utf-8", "replace") if index.is_file() else None
    expected = {name: _expected(folder / name) for name in sizes if name.endswith(_SHARD)}
    return list(checkpoint_faults(sizes, text, expected))


def read_gb_per_token(folder: Path, *, quantized_on_load: bool) -> float | None:
    """Return what a step of one stream reads at least (GB); None where the files do not tell."""
    tensors: list[Tensor] = []
    for path in folder.glob(f"*{_SHARD}"):
        header = _header(path)
        found = None if header is None else tensors_of(header)
        if found is None:
            return None
        tensors += found
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    return gb_per_token(config, tensors, quantized_on_load=quantized_on_load)


def _expected(path: Path) -> int | None:
    header = _header(path)
    return None if header is None else expected_size(header)


def _header(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            length = header_size(file.read(HEADER_LENGTH))
            return None if length is None else file.read(length)
    except OSError:
        return None
