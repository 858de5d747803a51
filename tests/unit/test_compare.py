"""What an A/B says besides its verdicts, and when it compares nothing."""

from __future__ import annotations

from dataclasses import replace

from pytest_sparkperf.core.compare import explain
from pytest_sparkperf.core.result import FlagCount, Result, Verdict

SAME = "A and B report identical facts: the change did nothing that the server tells of"
SPEEDUP = Verdict("min_speedup", "PASS", 1.4, 1.3, 1.5, 1.25, 1.2, "", 3)
DECODE = Verdict("min_decode", "PASS", 100.0, 98.0, 102.0, 80.0, 79.0, "", 3)
A = Result(
    tpot_ms=10.0, server={"name": "a", "url": "http://h:1", "k": 0}, flags={"past_end": FlagCount(0, 12)}
)
B = Result(
    tpot_ms=8.0,
    acceptance_length=2.5,
    server={"name": "b", "url": "http://h:2", "k": 3},
    flags={"past_end": FlagCount(1, 12)},
    verdicts=(SPEEDUP, DECODE),
    against=A,
)
UNLIKE = (
    "past_end: 4/12 answers of B (b) against 0/12 of A (a), more than 10 points apart: they did different "
    "work, so their speeds cannot be compared. The model ended its answer before the output length was "
    "reached; what follows under ignore_eos is text it never meant to write. Compare the texts, or use "
    "prompts with longer answers"
)


def test_a_change_is_split_into_draft_and_step() -> None:
    found = explain(B, 0.0)

    assert found.ratio == 1
    assert found.notes == ("tokens per step 1.00 -> 2.50 (+150.0%), step 10.00 -> 20.00 ms (+100.0%)",)
    assert found.verdicts == B.verdicts


def test_servers_that_tell_the_same_of_themselves_are_said_to() -> None:
    alike = replace(A, server={"name": "b", "url": "http://h:2", "k": 0}, against=A)

    assert explain(alike, 0.0).notes[0] == SAME


def test_servers_that_did_different_work_have_no_ratio_and_no_comparison() -> None:
    found = explain(replace(B, flags={"past_end": FlagCount(4, 12)}), 0.3)

    assert found.ratio is None
    assert found.verdicts == (
        Verdict("min_speedup", "ERROR", None, None, None, 1.25, None, UNLIKE, 3),
        DECODE,
    )


def test_a_comparison_by_eye_of_different_work_is_an_error_too() -> None:
    bare = replace(B, verdicts=(), flags={"past_end": FlagCount(4, 12)})

    assert explain(bare, 0.3).verdicts == (
        Verdict("comparison", "ERROR", None, None, None, None, None, UNLIKE),
    )
