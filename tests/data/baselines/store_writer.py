"""Records runs into one baseline file, as a process of its own: folder, name, number of runs (0: no end)."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from baseline_samples import EMPTY_FILE, SPARK, TEST, WORK, record_at

from pytest_sparkperf.adapters.store import FolderStore, baseline_path
from pytest_sparkperf.core.baseline import BaselineFile, Record, append_record


def main() -> None:
    folder, name, runs = sys.argv[1:]
    store = FolderStore(Path(folder), lock_timeout_s=300)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in count() if runs == "0" else range(int(runs)):
        stamp = f"2026-11-01T10:{number // 60 % 60:02}:{number % 60:02}Z"
        record = replace(record_at(1, 100.0 + number % 10), run=f"{name}-{number}", recorded_at=stamp)
        store.update(baseline_path(SPARK, TEST), partial(with_record, record))


def with_record(record: Record, before: BaselineFile | None) -> BaselineFile:
    return append_record(before, EMPTY_FILE, WORK, record)


if __name__ == "__main__":
    main()
