"""The page on servers names every key of a target, with the launch kinds it is for."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_sparkperf.core.target_keys import TARGET_KEYS
from pytest_sparkperf.core.targets import LAUNCHES, STARTED_LAUNCHES

PAGE = Path(__file__).parents[2] / "docs" / "servers.md"


def test_every_key_stands_there_with_its_launch_kinds() -> None:
    rows = [line.split("|")[1:3] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    kinds: dict[str, set[str]] = {"all": set(LAUNCHES), "started": set(STARTED_LAUNCHES)}
    told = {
        key: kinds.get(launches.strip()) or set(re.split(r", ", launches.strip()))
        for keys, launches in rows
        for key in re.findall(r"`(\w+)`", keys)
    }

    assert told == {name: set(key.launches) for name, key in TARGET_KEYS.items()}
