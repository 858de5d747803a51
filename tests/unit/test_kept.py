"""What a broken-off run keeps: every figure of a result, none of its texts."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_sparkperf.adapters.kept_file import KeptFile
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.kept import gate_digest, is_worth_keeping, result_document, result_from
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.result import FlagCount, RequestResult, Result, Verdict
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant

VERDICT = Verdict("min_decode", "PASS", 105.0, 100.0, 110.0, 95.0, 90.0, "", 3, "assumed")
REQUEST = RequestResult(
    valid=True,
    prompt_name="code",
    written_s=1.0,
    first_event_s=1.5,
    last_event_s=2.5,
    first_event_tokens=1,
    token_events=3,
    prompt_tokens=1000,
    output_tokens=9,
    itl_ms=(500.0, 500.0),
    finish_reason="length",
    status=200,
)
RESULT = Result(
    decode_tok_s=105.25,
    ttft_ms=500.0,
    acceptance_per_position=(0.9, 0.8),
    requests=(REQUEST,),
    invalid=MappingProxyType({"timeout": 1}),
    rounds=3,
    verdicts=(VERDICT,),
    server=MappingProxyType({"name": "here k=3", "k": 3, "simulated": True}),
    simulated=True,
    flags=MappingProxyType({"degenerate": FlagCount(1, 4)}),
    against=Result(decode_tok_s=67.9, rounds=3),
    notes=("a note",),
)
WHERE = "line 1 of 'kept'"


def there_and_back(result: Result) -> Result:
    return result_from(json.loads(json.dumps(result_document(result), allow_nan=False)), WHERE)


def test_a_result_comes_back_with_all_its_figures() -> None:
    back = there_and_back(RESULT)

    assert back == RESULT
    assert back.percentile("ttft_ms", 50) == 500.0


@pytest.mark.parametrize("name", [field.name for field in fields(Result)])
def test_every_field_of_a_result_has_a_plain_form(name: str) -> None:
    assert name in result_document(Result())


def test_what_was_asked_and_answered_is_not_kept() -> None:
    spoken = replace(REQUEST, text="hello", reasoning="so", token_ids=(1, 2), tool_calls=({"id": "1"},))

    assert there_and_back(replace(RESULT, requests=(spoken,))) == RESULT
    assert "hello" not in json.dumps(result_document(replace(RESULT, requests=(spoken,))))


def test_a_value_without_a_plain_form_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        result_document(replace(RESULT, server=MappingProxyType({"odd": object()})))

    assert str(caught.value) == "object has no plain form yet"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"is": "Result", "colour": 1}, "Result.__init__() got an unexpected keyword argument 'colour'"),
        ({"is": "Other"}, "'Other'"),
        ({}, "no result"),
    ],
)
def test_a_document_of_another_version_is_refused(document: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        result_from(document, WHERE)

    assert str(caught.value) == (
        f"line 1 of 'kept' holds no result as this version keeps it ({why}); remove the file to measure "
        "everything anew"
    )


def test_only_what_was_measured_is_kept() -> None:
    broken = replace(VERDICT, outcome="ERROR")

    assert is_worth_keeping(RESULT)
    assert is_worth_keeping(replace(RESULT, verdicts=(replace(VERDICT, outcome="FAIL"),)))
    assert not is_worth_keeping(replace(RESULT, verdicts=(VERDICT, broken)))
    assert not is_worth_keeping(replace(RESULT, rounds=0))


def digest(test: str = "t", gates: int = 1, env: dict[str, str] | None = None, **keywords: object) -> str:
    target = Target("here", "sim")
    spec = parse_mark({**keywords, "env": env or {}})
    variant = make_variant(target, k=spec.k, env=spec.env)
    return gate_digest(test, spec, {SUBJECT: variant}, gates)


def test_a_gate_is_the_same_only_if_everything_it_asks_for_is() -> None:
    assert digest(k=3) == digest(k=3)
    others = [
        digest(k=2),
        digest(k=3, output_tokens=32),
        digest(k=3, min_decode=1),
        digest("u", k=3),
        digest(gates=2, k=3),
        digest(env={"A": "1"}, k=3),
        digest(env={"A": "2"}, k=3),
    ]
    assert len({digest(k=3), *others}) == len(others) + 1


def test_a_file_keeps_results_from_one_run_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kept"
    first = KeptFile(path)
    first.add("d1", "t", RESULT)

    assert first.find("d1") == KeptFile(path).find("d1") == RESULT
    assert KeptFile(path).find("d2") is None


def test_a_line_that_was_cut_off_is_measured_again_and_swallows_no_other(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    for name in ("d1", "d2"):
        KeptFile(path).add(name, "t", RESULT)
    path.write_bytes(path.read_bytes()[:-30])

    found = KeptFile(path)
    assert (found.find("d1"), found.find("d2")) == (RESULT, None)
    found.add("d3", "t", RESULT)
    assert KeptFile(path).find("d3") == RESULT


@pytest.mark.parametrize("text", ["version: 1\n", '{"format": "other"}\n', "[1]\n"])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        KeptFile(path)

    assert str(caught.value) == (
        f"{str(path)!r} is not a file that --sparkperf-resume has written; name a new one, which is made, or "
        "the one of the run that was broken off"
    )
    assert path.read_text() == text


def test_a_folder_can_be_neither_read_nor_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as read:
        KeptFile(tmp_path)
    kept = KeptFile(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    with pytest.raises(ConfigError) as written:
        kept.add("d", "t", RESULT)

    assert str(read.value) == (
        f"{str(tmp_path)!r} cannot be read (Is a directory); name a file by --sparkperf-resume"
    )
    assert str(written.value) == (
        f"{str(tmp_path / 'kept')!r} cannot be written (Is a directory), so this run could not be resumed; "
        "name another file by --sparkperf-resume, or leave it out"
    )
