from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.adapters.logtail import clean_line, fence, read_end, read_tail


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[36m(APIServer pid=1)\x1b[0;0m INFO ready", "(APIServer pid=1) INFO ready"),
        (" 0%|\r 50%|##\r100%|####\r", "100%|####"),
        ("windows line\r", "windows line"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("bell\x07 back\x08 nul\x00 c1\x9b next\x85", "bell back nul c1 next"),
        ("tab\tstays", "tab\tstays"),
        ("two\u2028lines", "twolines"),
        ("\x1b[31m   \x1b[0m", ""),
    ],
)
def test_a_line_is_what_a_terminal_shows(line: str, shown: str) -> None:
    assert clean_line(line) == shown


def test_the_tail_has_no_empty_lines_and_survives_broken_utf8(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"early\n\nready\n \n\xff end")
    assert read_tail(path, 2) == ["ready", "\ufffd end"]


def test_the_tail_reads_a_bounded_part_beginning_with_a_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 70_000 + "\nlast\n")
    assert read_tail(path, 20) == ["last"]
    assert read_end(path, 7) == "last\n"


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "log", 5) == []
    assert read_end(tmp_path / "log") == ""


def test_fenced_lines_cannot_begin_a_workflow_command() -> None:
    assert fence(["::error::x", "y"]) == "  | ::error::x\n  | y"
