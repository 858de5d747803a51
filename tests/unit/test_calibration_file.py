from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.adapters.calibration_file import (
    calibration_path,
    read_calibration,
    write_calibration,
)
from pytest_sparkperf.core.calibration import Calibration, MetricSpread
from pytest_sparkperf.core.errors import ConfigError

KEY = "gb10-1x-aarch64-20c-128g-0a1b"
SPREADS = {
    "decode_tok_s": MetricSpread(0.0052, 0.0031, 0.0149, 0.00015, 0.00035),
    "ttft_ms": MetricSpread(0.064, 0.038, 0.18, 0.05, 1e-05),
}
AGAIN = "calibrate again (sparkperf calibrate), or remove the file"
FOUND = Calibration(
    "2026-11-30T16:05:34Z", "qwen36 k=3", "12345678901e4567", 5, 6, SPREADS, {"12345678901e4567": 71.0}
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = write_calibration(tmp_path / "new" / "folder", KEY, FOUND)

    assert path == calibration_path(tmp_path / "new" / "folder", KEY)
    assert read_calibration(path.parent, KEY) == FOUND
    assert [entry.name for entry in path.parent.iterdir()] == [f"{KEY}.yaml"]


def test_the_text_is_readable_in_a_diff(tmp_path: Path) -> None:
    text = write_calibration(tmp_path, KEY, FOUND).read_text(encoding="utf-8")

    assert text == (
        "# Written by `sparkperf calibrate`: spreads are standard deviations on the log scale (0.01 is 1 "
        "%).\n"
        "schema_version: 1\n"
        'recorded_at: "2026-11-30T16:05:34Z"\n'
        'server: "qwen36 k=3"\n'
        'workload: "12345678901e4567"\n'
        "launches: 5\n"
        "rounds: 6\n"
        "spreads:\n"
        "  decode_tok_s:\n"
        "    launch_sd: 0.0052\n"
        "    launch_low: 0.0031\n"
        "    launch_high: 0.0149\n"
        "    round_sd: 0.00015\n"
        "    request_sd: 0.00035\n"
        "  ttft_ms:\n"
        "    launch_sd: 0.064\n"
        "    launch_low: 0.038\n"
        "    launch_high: 0.18\n"
        "    round_sd: 0.05\n"
        "    request_sd: 1.0e-05\n"
        "plateaus_c:\n"
        '  "12345678901e4567": 71.0\n'
    )


def test_a_machine_without_a_calibration_has_none(tmp_path: Path) -> None:
    assert read_calibration(tmp_path, KEY) is None


def test_a_second_calibration_keeps_the_plateaus_of_other_workloads(tmp_path: Path) -> None:
    write_calibration(tmp_path, KEY, FOUND)
    burst = Calibration(
        "2026-12-01T09:00:00Z",
        "qwen36 k=3",
        "b",
        6,
        6,
        {"decode_tok_s": SPREADS["decode_tok_s"]},
        {"b": 78.0},
    )

    write_calibration(tmp_path, KEY, burst)

    found = read_calibration(tmp_path, KEY)
    assert found is not None
    assert found.plateaus_c == {"12345678901e4567": 71.0, "b": 78.0}
    assert (found.launches, set(found.spreads)) == (6, {"decode_tok_s"})


def test_a_broken_file_is_replaced_by_a_new_calibration(tmp_path: Path) -> None:
    calibration_path(tmp_path, KEY).write_text("[", encoding="utf-8")

    write_calibration(tmp_path, KEY, FOUND)

    assert read_calibration(tmp_path, KEY) == FOUND


@pytest.mark.parametrize(
    ("before", "after", "faults"),
    [
        (
            "schema_version: 1",
            "schema_version: 2",
            [f"schema_version: 2 is not 1, the only one; {AGAIN}"],
        ),
        (
            "launches: 5",
            "launches: 2",
            ["launches: 2 is too few; a calibration has at least 5 starts"],
        ),
        ("rounds: 6", "rounds: many", ["rounds: 'many' is not a whole number above 0"]),
        (
            "    launch_sd: 0.0052\n",
            "    launch_sd: -1\n",
            ["spreads.decode_tok_s.launch_sd: -1 is not a spread: a number from 0 to 10"],
        ),
        (
            "    round_sd: 0.05\n",
            "",
            ["spreads.ttft_ms.round_sd: an empty value is not a spread: a number from 0 to 10"],
        ),
        (
            "  decode_tok_s:\n",
            "  decod_tok_s:\n",
            [
                (
                    "spreads: {'decod_tok_s': {'launch_sd': 0.0052, 'launch_low': 0.003... is not a mapping "
                    "of metrics with decode_tok_s among them"
                )
            ],
        ),
        (
            '  "12345678901e4567": 71.0',
            "  burst: 900",
            ["plateaus_c.burst: 900 is not a temperature: a number from 0 to 200"],
        ),
        (
            'server: "qwen36 k=3"\n',
            "",
            [f"server is missing; {AGAIN}"],
        ),
    ],
)
def test_every_fault_of_a_file_is_said(tmp_path: Path, before: str, after: str, faults: list[str]) -> None:
    path = write_calibration(tmp_path, KEY, FOUND)
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        read_calibration(tmp_path, KEY)

    assert str(caught.value) == "\n".join(f"{path}: {fault}" for fault in faults)


def test_a_text_that_is_no_yaml_names_its_line(tmp_path: Path) -> None:
    path = calibration_path(tmp_path, KEY)
    path.write_text("schema_version: 1\nserver: a\nserver: b\n", encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        read_calibration(tmp_path, KEY)

    assert str(caught.value).startswith(f"{path}:3: ")


def test_a_document_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    path = calibration_path(tmp_path, KEY)
    path.write_text("- 1\n", encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        read_calibration(tmp_path, KEY)

    assert str(caught.value) == (f"{path}: [1] is not a calibration; {AGAIN}")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        write_calibration(tmp_path / "file", KEY, FOUND)

    assert str(caught.value) == (
        f"the calibration {tmp_path / 'file' / KEY}.yaml cannot be written: file exists; make room and the "
        "folder writable, or name another with --folder"
    )
