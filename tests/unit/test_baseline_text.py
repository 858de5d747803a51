from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from baseline_samples import EMPTY_FILE, TEST, WORK, file_with, record_at

from pytest_sparkperf.adapters.baseline_text import (
    CorruptBaselineError,
    NewerBaselineError,
    baseline_text,
    read_baseline_text,
)
from pytest_sparkperf.core.baseline import Figure, append_record
from pytest_sparkperf.core.baseline_schema import MIGRATIONS, SCHEMA_VERSION, migrate, to_document
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.metrics import METRICS

GOOD = file_with(
    record_at(
        1, 104.612, facts={"vllm": "0.24.0", "arguments": {"moe-backend": "marlin", "enforce-eager": True}}
    ),
    record_at(
        2,
        commit="12345e12",
        batch="bootstrap-1",
        flags=FrozenMap({"past_end": 0.25}),
        thermal=FrozenMap({"clock_end_mhz": 2400}),
    ),
)
TEXT = baseline_text(GOOD).decode()
LONG = """\
# Written by pytest --sparkperf --sparkperf-record; `sparkperf baseline show` and `diff` explain it.
schema_version: 1
test: "tests/test_speed.py::test_decode[k3]"
hardware:
  source: seen
  gpus:
  - name: GB10
    count: 1
    capability: "12.1"
  cpu: Cortex-A725 + Cortex-X925
  cores: 20
  architecture: aarch64
  memory_gib: 128
series:
- work:
    model: acme/m-35b
    k: 3
    speculator: mtp
    workload: "0123456789abcdef"
    metric_rule: minus_first_event
    source: own
  records:
  - run: run-01
    recorded_at: "2026-11-01T10:00:00Z"
    anchor: true
    rounds: 12
    temperature_c: 61
    figures:
      decode_tok_s:
        value: 104.612
        sd: 0.0078
    facts:
      vllm: "0.24.0"
      arguments:
        enforce-eager: true
        moe-backend: marlin
"""


def test_a_file_reads_well_from_top_to_bottom() -> None:
    facts = {"vllm": "0.24.0", "arguments": {"enforce-eager": True, "moe-backend": "marlin"}}
    assert baseline_text(file_with(record_at(1, 104.612, facts=facts))).decode() == LONG


def test_a_new_record_only_adds_lines() -> None:
    before = TEXT.splitlines()
    after = baseline_text(append_record(GOOD, EMPTY_FILE, WORK, record_at(3))).decode().splitlines()

    assert after[: len(before)] == before


def test_a_file_survives_being_written_and_read() -> None:
    assert read_baseline_text(baseline_text(GOOD), "f") == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "1e3",
        "12345e12",
        "0x1f",
        "0o7",
        "012",
        "1:30",
        "yes",
        "off",
        "null",
        "~",
        "true",
        "2026-11-30",
        "<<",
        "=",
        "- a",
        "a: b",
        "a #b",
        "#",
        "&a",
        "*a",
        "!t",
        "{a",
        "[a",
        "'",
        '"',
        "\\",
        "%",
        "@",
        "`",
        " x ",
        "a\nb",
        "\t",
        "t\u00e9\u2028\u0085",
        "",
        ".inf",
        ".5",
        "1_000",
        "0b1",
        "test[k=3, x]",
        "---",
        "\U0001f525",
        "-",
        "?",
    ],
)
def test_no_text_becomes_something_else_in_any_version_of_yaml(text: str) -> None:
    file = file_with(
        record_at(1, facts={"text": text, "within": [text, {"k": text}]}, commit=text.strip() or None)
    )
    file = replace(file, test=text if text.strip() else TEST)

    data = baseline_text(file)

    assert read_baseline_text(data, "f") == file
    assert yaml.safe_load(data) == to_document(file)


@pytest.mark.parametrize("value", [1e-07, 1e-300, 123456789.5, 0.1, 5300.0, 1e6, 999999.0, 1.5e11])
def test_numbers_survive(value: float) -> None:
    file = file_with(replace(record_at(1), figures={"decode_tok_s": Figure(value, 1e-05)}))

    assert read_baseline_text(baseline_text(file), "f") == file


def swapped(old: str, new: str) -> bytes:
    assert old in TEXT
    return TEXT.replace(old, new, 1).encode()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
GONE = "remove the file, or take it from git again"
BROKEN: list[tuple[str, bytes, str]] = [
    ("empty", b"", f"b.yaml:1: an empty value is not a baseline; {GONE}"),
    ("a word", b"hello", f"b.yaml:1: 'hello' is not a baseline; {GONE}"),
    ("a list", b"- 1\n", f"b.yaml:1: [1] is not a baseline; {GONE}"),
    ("bomb", BOMB.encode(), "b.yaml:1: holds more than 10000 values once aliases are followed"),
    (
        "anchor",
        swapped("run: run-01", "run: &x run-01"),
        "b.yaml:23: holds &x, an anchor or alias, which sparkperf never writes; write the value out",
    ),
    (
        "alias of itself",
        b"a: &a\n  b: *a\n",
        "b.yaml:1: holds an alias of itself; write the values out",
    ),
    ("unknown alias", b"a: *b\n", "b.yaml:1: undefined alias 'b'; define it by & above this line"),
    (
        "tag that runs code",
        swapped("rounds: 12", 'rounds: !!python/object/apply:os.system ["touch /tmp/x"]'),
        (
            "b.yaml:26: series.0.records.0.rounds: has the tag !!python/object/apply:os.system, which is "
            "not allowed; write the value without a tag"
        ),
    ),
    (
        "huge",
        b"#" * 300_000,
        (
            "b.yaml:1: holds more than 256 KiB, which is more than sparkperf ever writes; remove it, or "
            "take it from git again"
        ),
    ),
    ("deep", b"[" * 20_000, "b.yaml:1: is nested more than 20 levels deep"),
    (
        "wide",
        b"[" + b"1," * 12_000 + b"1]",
        "b.yaml:1: holds more than 10000 values once aliases are followed",
    ),
    ("binary", b"\x00\x01\x02", "b.yaml:1: the character '\\x00' is not allowed; delete it"),
    ("latin-1", b"test: t\xe9\n", "b.yaml:1: is not UTF-8 (byte 0xe9); save the file as UTF-8"),
    (
        "doubled key",
        swapped("test:", "schema_version: 1\ntest:"),
        "b.yaml:3: schema_version: is given twice, first in line 2; keep one",
    ),
    (
        "merge marks",
        swapped("  cores: 20\n", "<<<<<<< HEAD\n  cores: 20\n=======\n"),
        (
            "b.yaml:12: is not valid YAML: could not find expected ':' while scanning a simple key, which "
            "begins in line 11"
        ),
    ),
    (
        "unknown key",
        swapped("cores:", "core:"),
        (
            "b.yaml:11: hardware.core: is not a known key; did you mean cores? valid keys are source, gpus, "
            "cpu, cores, architecture, memory_gib, nodes"
        ),
    ),
    (
        "unknown metric",
        swapped("decode_tok_s:", "decode_tps:"),
        "b.yaml:29: series.0.records.0.figures.decode_tps: is not a known key; did you mean decode_tok_s? "
        "valid keys are " + ", ".join(METRICS),
    ),
    (
        "no test",
        swapped('test: "tests/test_speed.py::test_decode[k3]"\n', ""),
        f"b.yaml:2: test is missing; {GONE}",
    ),
    (
        "empty series",
        swapped("series:", "series: []\nx:"),
        "b.yaml:15: x: is not a known key; valid keys are schema_version, test, hardware, series",
    ),
    (
        "text for a number",
        swapped("rounds: 12", "rounds: twelve"),
        "b.yaml:26: series.0.records.0.rounds: 'twelve' is not a whole number above 0",
    ),
    (
        "negative",
        swapped("value: 104.612", "value: -1"),
        "b.yaml:30: series.0.records.0.figures.decode_tok_s.value: -1 is not a number of 0 or more",
    ),
    (
        "not a number",
        swapped("value: 104.612", "value: .nan"),
        "b.yaml:30: series.0.records.0.figures.decode_tok_s.value: nan is not a number of 0 or more",
    ),
    (
        "overflow",
        swapped("value: 104.612", "value: 1" + "0" * 400),
        "b.yaml:30: series.0.records.0.figures.decode_tok_s.value: 1"
        + "0" * 56
        + "... is not a number of 0 or more",
    ),
    (
        "time",
        swapped("2026-11-01T10:00:00Z", "2026-02-30T10:00:00Z"),
        (
            "b.yaml:24: series.0.records.0.recorded_at: '2026-02-30T10:00:00Z' is not a time in UTC such as "
            "'2026-11-30T16:05:34Z'"
        ),
    ),
    (
        "short time",
        swapped("2026-11-01T10:00:00Z", "2026-11-1T10:00:00Z"),
        (
            "b.yaml:24: series.0.records.0.recorded_at: '2026-11-1T10:00:00Z' is not a time in UTC such as "
            "'2026-11-30T16:05:34Z'"
        ),
    ),
    (
        "doubled run",
        swapped("run: run-02", "run: run-01"),
        "b.yaml:37: series.0.records.1.run: 'run-01' is recorded twice; keep one of these records",
    ),
    (
        "a million GPUs",
        swapped("count: 1", "count: 1000000"),
        "b.yaml:8: hardware.gpus.0.count: 1000000 is not a whole number from 1 to 1024",
    ),
    (
        "source",
        swapped("source: seen", "source: guessed"),
        "b.yaml:5: hardware.source: 'guessed' is not one of 'seen', 'declared', 'simulator'",
    ),
    (
        "old schema",
        swapped("schema_version: 1", "schema_version: 0"),
        "b.yaml:2: schema_version: 0 is no schema version; valid is 1",
    ),
    (
        "true schema",
        swapped("schema_version: 1", "schema_version: true"),
        "b.yaml:2: schema_version: true is no schema version; valid is 1",
    ),
    (
        "work",
        swapped("k: 3", "k: three"),
        "b.yaml:17: series.0.work.k: 'three' is not a whole number of 0 or more",
    ),
    (
        "nothing within",
        swapped("figures:", "figures: []\n    thermal:"),
        "b.yaml:28: series.0.records.0.figures: [] is not a mapping of metrics",
    ),
]


@pytest.mark.parametrize(
    ("data", "error"), [pytest.param(data, error, id=name) for name, data, error in BROKEN]
)
def test_a_broken_file_is_an_error_with_file_and_line(data: bytes, error: str) -> None:
    with pytest.raises(CorruptBaselineError) as raised:
        read_baseline_text(data, "b.yaml")

    assert str(raised.value).splitlines()[0] == error


def test_a_file_of_a_later_version_says_so() -> None:
    with pytest.raises(NewerBaselineError) as raised:
        read_baseline_text(swapped("schema_version: 1", "schema_version: 7\nfuture: {a: 1}"), "b.yaml")

    assert str(raised.value) == (
        "b.yaml:2: schema_version: 7 is newer than 1, the newest that this version of pytest-sparkperf "
        "reads; update pytest-sparkperf here, or record again with this one"
    )


def test_many_faults_are_cut_short() -> None:
    gpu = '  - name: GB10\n    count: 1\n    capability: "12.1"\n'
    data = swapped(gpu, "  - {name: 1, count: 0, a: 1}\n" * 9)

    with pytest.raises(CorruptBaselineError) as raised:
        read_baseline_text(data, "b.yaml")

    lines = str(raised.value).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "and 17 more"


def trouble(data: bytes) -> str | None:
    """Return what reading says is wrong; None where it gives a file."""
    try:
        read_baseline_text(data, "b.yaml")
    except CorruptBaselineError as error:
        return str(error)
    return None


def damaged(chance: random.Random) -> bytes:
    data = bytearray(TEXT.encode())
    for _ in range(chance.randint(1, 8)):
        where = chance.randrange(len(data))
        data[where : where + chance.randint(0, 40)] = chance.randbytes(chance.randint(0, 12))
    return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.5 else data)


def test_a_hundred_damaged_files_are_errors_with_file_and_line() -> None:
    """Damage may also leave a valid file: a digit of a figure that became another digit."""
    chance = random.Random(6)

    texts = [text for text in (trouble(damaged(chance)) for _ in range(130)) if text is not None]

    assert len(texts) >= 100
    assert not [text for text in texts if not re.match(r"b\.yaml:\d+: ", text)]


def test_every_truncation_is_an_error_or_ends_behind_a_record_that_can_stand_alone() -> None:
    data = TEXT.encode()
    whole = TEXT.index("value: 104.612")

    found = {end: trouble(data[:end]) for end in range(0, len(data) - 1, 13)}

    assert not [end for end, text in found.items() if text is None and end < whole]
    assert not [text for text in found.values() if text is not None and not text.startswith("b.yaml:")]


def test_an_older_schema_is_brought_up_to_date_step_by_step() -> None:
    def renamed(document: dict[str, Any]) -> dict[str, Any]:
        return {"test": document["name"]}

    def extended(document: dict[str, Any]) -> dict[str, Any]:
        return document | {"series": []}

    steps = {1: renamed, 2: extended}

    assert migrate({"schema_version": 1, "name": "t"}, 1, 3, steps) == {
        "test": "t",
        "series": [],
        "schema_version": 3,
    }
    assert migrate({"schema_version": 2, "test": "t"}, 2, 3, steps) == {
        "schema_version": 3,
        "test": "t",
        "series": [],
    }
    assert set(MIGRATIONS) == set(range(1, SCHEMA_VERSION)), "every old version has a way to the newest"
