"""Judging compared answers: what fails, what is excused, and with which words."""

from __future__ import annotations

import pytest
from equivalence_data import answer, case
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from pytest_sparkperf.core.equivalence import Comparison, Generation, Kind, compare
from pytest_sparkperf.core.same_output import (
    Item,
    Line,
    failed_line,
    fisher_p,
    judge_line,
    needs_second_start,
    not_judged,
    verdict_of,
    worse_than_control,
)
from pytest_sparkperf.core.toolcheck import BROKEN_JSON, Finding

UNSETTLED = (
    "3 of 12 answers diverge, off against itself 1: too few answers to tell these apart, compare more prompts"
)
BROKEN = Finding(BROKEN_JSON, "'{{'")


def compared(kind: Kind) -> Comparison:
    return Comparison(kind, 10)


def items(
    subject: int = 0,
    control: int = 0,
    launch: int | None = None,
    *,
    total: int = 12,
    kind: Kind = "divergent",
) -> list[Item]:
    """Return items of which the first ``subject`` diverge, the last ``control`` against off itself, ..."""
    return [
        Item(
            f"p{at}",
            compared(kind if at < subject else "equal"),
            control=compared("divergent" if at >= total - control else "equal"),
            launch=None if launch is None else compared("divergent" if at < launch else "equal"),
        )
        for at in range(total)
    ]


# ---------------------------------------------------------------- counts


@given(st.integers(1, 40), st.data())
def test_p_is_that_of_fishers_exact_test(answers: int, data: st.DataObject) -> None:
    control, subject = (data.draw(st.integers(0, answers)) for _ in range(2))
    table = [[subject, answers - subject], [control, answers - control]]

    assert fisher_p(control, subject, answers) == pytest.approx(fisher_exact(table, "greater").pvalue)


@pytest.mark.parametrize(
    ("control", "subject", "expected"),
    [
        (0, 0, "no"),
        (3, 3, "no"),
        (3, 2, "no"),
        (0, 1, "yes"),  # a clean control: one is too many
        (1, 2, "unsettled"),
        (1, 5, "unsettled"),  # p 0.077
        (1, 6, "yes"),  # p 0.034
        (6, 12, "yes"),
    ],
)
def test_worse_than_the_control(control: int, subject: int, expected: str) -> None:
    assert worse_than_control(control, subject, 12) == expected


# ---------------------------------------------------------------- one line


@pytest.mark.parametrize(
    ("subject", "control", "launch", "outcome", "reason"),
    [
        (0, 0, None, "PASS", ""),
        (0, 2, None, "PASS", ""),
        (1, 0, None, "FAIL", "1 of 12 answers diverge, off against itself 0"),
        (2, 2, None, "PASS", "2 of 12 answers diverge, no worse than off against itself 2"),
        (
            3,
            1,
            None,
            "INCONCLUSIVE",
            UNSETTLED,
        ),
        (8, 1, None, "FAIL", "8 of 12 answers diverge, off against itself 1"),
        (4, 0, 4, "PASS", "4 of 12 answers diverge, no worse than a second start of off"),
        (4, 0, 0, "FAIL", "4 of 12 answers diverge, off against itself 0"),
    ],
)
def test_outcome_follows_from_the_counts(
    subject: int, control: int, launch: int | None, outcome: str, reason: str
) -> None:
    line = judge_line("plain", items(subject, control, launch))

    assert (line.outcome, line.reason) == (outcome, reason)


def test_near_ties_pass_unless_strict() -> None:
    tied = items(12, kind="near_tie")

    assert judge_line("plain", tied).outcome == "PASS"
    assert judge_line("plain", tied).count("near_tie") == 12
    strict = judge_line("plain", tied, strict=True)
    assert (strict.outcome, strict.reason) == ("FAIL", "12 of 12 answers diverge, off against itself 0")


def test_what_only_a_second_start_excuses_is_called_launch() -> None:
    line = judge_line("plain", items(4, 0, 4))

    assert (line.count("launch"), line.count("divergent"), line.count("equal")) == (4, 0, 8)


def test_a_second_start_is_asked_for_only_when_a_divergence_would_not_pass() -> None:
    assert needs_second_start(judge_line("plain", items(1)))
    assert needs_second_start(judge_line("plain", items(3, 1)))
    assert not needs_second_start(judge_line("plain", items(2, 2)))
    assert not needs_second_start(judge_line("plain", items(4, 0, 0)))
    broken = [Item("p0", compared("equal"), on_faults=(BROKEN,))]
    assert not needs_second_start(judge_line("tool calls", broken))
    assert not needs_second_start(not_judged("plain", "why"))


def test_structured_output_is_judged_by_how_many_answers_are_valid() -> None:
    found = [
        Item(f"p{at}", compared("equal"), on_faults=(BROKEN,) if at < 10 else (), off_faults=())
        for at in range(24)
    ]

    line = judge_line("structured output", found)

    assert line.outcome == "FAIL"
    assert line.reason == (
        "14 of 24 answers valid, off 24 of 24 (p0: broken_json: '{{'; p1: broken_json: '{{'; "
        "p2: broken_json: '{{'; and 7 more)"
    )


def test_faults_that_off_has_too_are_not_speculations() -> None:
    found = [Item("p0", compared("equal"), on_faults=(BROKEN,), off_faults=(BROKEN,))]

    assert judge_line("structured output", found) == Line("structured output", tuple(found), "PASS", "")


def test_a_fault_is_worse_than_an_unsettled_divergence() -> None:
    found = [*items(3, 1), Item("tool", compared("equal"), on_faults=(BROKEN,))]

    line = judge_line("tool calls", found)

    assert line.outcome == "FAIL"
    assert line.reason == (
        "12 of 13 answers valid, off 13 of 13 (tool: broken_json: '{{'); 3 of 13 answers diverge, "
        "off against itself 1: too few answers to tell these apart, compare more prompts"
    )


def test_stable_arms_that_differ_make_a_systematic_difference() -> None:
    found = case("G12")
    off, on, on_again, off_again = (Generation(answer(text)) for text in found["texts"])
    item = Item(
        "p0",
        compare(off, on),
        control=compare(off, off_again),
        on_stable=compare(on, on_again).kind == "equal",
    )

    assert found["order"] == ["off", "on", "on", "off"]
    assert item.control is not None
    assert item.control.kind == "equal"
    assert item.on_stable is True
    assert item.systematic
    assert judge_line("plain", [item]).outcome == "FAIL"


def test_a_server_that_disagrees_with_itself_says_nothing_about_speculation() -> None:
    first, warm, *_ = (Generation(answer(run["content"])) for run in case("G03")["runs"])
    item = Item("p0", compare(first, warm), control=compare(first, warm))

    assert not item.systematic
    assert judge_line("plain", [item]).outcome == "PASS"


# ---------------------------------------------------------------- all lines


def test_verdict_counts_what_is_equal_and_what_is_excused() -> None:
    lines = [
        judge_line("plain", items(2, kind="near_tie")),
        judge_line("plain, 4 at once", items(1, 1)),
        judge_line("tool calls", items(1, 0, 1, total=5)),
        not_judged("conversation", "prefix caching is off on off"),
    ]

    verdict = verdict_of(lines)

    assert (verdict.gate, verdict.outcome) == ("same_output", "PASS")
    assert verdict.reason == (
        "25 of 29 answers equal, 2 near-ties, 1 as different between two starts of off, 1 no worse than off "
        "against itself"
    )


@pytest.mark.parametrize(
    ("lines", "outcome", "reason"),
    [
        (
            [judge_line("plain", items(1)), judge_line("tools", items(3, 1))],
            "FAIL",
            "plain: 1 of 12 answers diverge, off against itself 0",
        ),
        (
            [judge_line("plain", items(1)), failed_line("tools", "ERROR", "off is gone")],
            "ERROR",
            "tools: off is gone",
        ),
        ([], "ERROR", "no answers were compared, so nothing is known about the output"),
        (
            [not_judged("conversation", "why")],
            "ERROR",
            "no answers were compared, so nothing is known about the output",
        ),
    ],
)
def test_the_worst_line_decides(lines: list[Line], outcome: str, reason: str) -> None:
    verdict = verdict_of(lines)

    assert (verdict.outcome, verdict.reason) == (outcome, reason)
