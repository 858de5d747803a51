from __future__ import annotations

import json
from pathlib import Path

from pytest_sparkperf.sim.records import EmissionRecord, Recorder


def record(name: str) -> EmissionRecord:
    made = EmissionRecord(name, arrival_s=1.0, prompt_tokens=20)
    made.add(1.5, 1)
    made.add(2.5, 4)
    return made


def test_a_record_is_one_line_with_its_totals() -> None:
    assert json.loads(record("a").to_json()) == {
        "request_id": "a",
        "arrival_s": 1.0,
        "prompt_tokens": 20,
        "cached_tokens": 0,
        "emitted_s": [1.5, 2.5],
        "tokens": [1, 4],
        "outcome": "finished",
        "first_s": 1.5,
        "last_s": 2.5,
        "output_tokens": 5,
    }


def test_a_request_without_emissions_has_no_times() -> None:
    line = json.loads(EmissionRecord("a", 1.0, 20).to_json())

    assert (line["first_s"], line["last_s"], line["output_tokens"]) == (None, None, 0)


def test_records_are_kept_and_appended_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "emissions.jsonl"
    recorder = Recorder(str(file))
    recorder.ended(record("a"))
    recorder.ended(record("b"))

    assert file.read_text() == recorder.lines()
    assert [json.loads(line)["request_id"] for line in recorder.lines().splitlines()] == ["a", "b"]
