"""The streams of tests/data/streams, for the tests that replay them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sparkperf.core.load import Endpoint

STREAMS = Path(__file__).parent.parent / "data" / "streams"
EXPECTED: dict[str, dict[str, Any]] = json.loads((STREAMS / "expected.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Case:
    """One response that misled another client: its writes as (seconds, bytes), and what is right."""

    name: str
    headers: dict[str, str]
    writes: tuple[tuple[float, bytes], ...]
    expected: dict[str, Any]


def load_cases() -> list[Case]:
    """Return the cases that are streams."""
    text = (STREAMS / "cases" / "cases.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line]
    return [_load(row) for row in rows if row["file"].endswith(".chunks.jsonl")]


def _load(row: dict[str, Any]) -> Case:
    with (STREAMS / "cases" / row["file"]).open(encoding="utf-8") as lines:
        head, *writes = map(json.loads, lines)
    assert head["status"] == 200
    assert head["end"] == "clean"
    pieces = [bytes.fromhex(one["hex"]) if "hex" in one else one["text"].encode() for one in writes]
    times_s = [one["t"] for one in writes]
    return Case(row["id"], head["headers"], tuple(zip(times_s, pieces, strict=True)), row["expected_values"])


def endpoint_of(name: str) -> Endpoint:
    """Return the endpoint that a capture came from, by its file's name."""
    return "completions" if ".cmpl_" in name else "chat"
