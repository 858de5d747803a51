from __future__ import annotations

from pathlib import Path

from pytest_sparkperf.adapters.proctable import ProcessEntry, descendants

DATA = Path(__file__).parents[1] / "data" / "machine"


def test_all_below_the_launching_shell_is_found_however_it_calls_itself() -> None:
    """After a kill of the API server its engines belong to the shell that started it, not to pid 1."""
    rows = [line.split()[:4] for line in (DATA / "D01_ps_orphans.txt").read_text().splitlines()[1:]]
    table = {
        int(pid): ProcessEntry(int(pid), int(ppid), int(pgid), int(sid), 1) for pid, ppid, pgid, sid in rows
    }

    assert sorted(entry.pid for entry in descendants(21913, table)) == [22010, 22101, 22102, 22107]
