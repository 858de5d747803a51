"""Whether a checkpoint is whole: its files by size, against its index and the headers of its shards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_sparkperf.core.active_weights import Tensor

INDEX = "model.safetensors.index.json"
# The header of a safetensors file: its length in 8 bytes, little endian, then JSON.
HEADER_LENGTH = 8
_LONGEST_HEADER = 100 << 20
_UNFINISHED = (".incomplete", ".part", ".tmp", ".aria2")


def shards_of(index: str) -> tuple[str, ...]:
    """Return the files that an index names; none where it is no index."""
    try:
        weights: Any = json.loads(index)["weight_map"]
        return tuple(sorted({str(name) for name in weights.values()}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def header_size(start: bytes) -> int | None:
    """Return the length of a shard's JSON header from its first 8 bytes; None where there can be none."""
    if len(start) < HEADER_LENGTH:
        return None
    length = int.from_bytes(start[:HEADER_LENGTH], "little")
    return length if 0 < length <= _LONGEST_HEADER else None


def expected_size(header: bytes) -> int | None:
    """Return the size that a shard must have by its header; None where the header cannot be read."""
    try:
        tensors: Mapping[str, Any] = json.loads(header)
        ends = [one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    return HEADER_LENGTH + len(header) + max(ends, default=0)


def tensors_of(header: bytes) -> tuple[Tensor, ...] | None:
    """Return the tensors that a shard's header describes; None where it cannot be read."""
    try:
        described: Mapping[str, Any] = json.loads(header)
        return tuple(
            Tensor(name, str(one["dtype"]), one["data_offsets"][1] - one["data_offsets"][0])
            for name, one in described.items()
            if name != "__metadata__"
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def checkpoint_faults(
    sizes: Mapping[str, int], index: str | None, expected: Mapping[str, int | None]
) -> Iterator[str]:
    """Yield what is missing: ``sizes`` of the files, ``expected`` ones (None: unreadable) of the shards."""
    missing = [name for name in shards_of(index or "") if name not in sizes]
    if missing:
        several = f"{', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}"
        yield f"{len(missing)} of {len(shards_of(index or ''))} shards are missing ({several})"
    for name, size in sizes.items():
        if name.endswith(_UNFINISHED):
            yield f"{name} is a download that did not end"
        elif name in expected and expected[name] is None:
            yield f"{name} has no readable header"
        elif (wanted := expected.get(name)) is not None and size < wanted:
            yield f"{name} has {size} of {wanted} bytes"
