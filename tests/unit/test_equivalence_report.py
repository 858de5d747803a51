"""The report's lines, word for word."""

from __future__ import annotations

import pytest
from equivalence_data import case, generation

from pytest_sparkperf.core.acceptance import Acceptance
from pytest_sparkperf.core.equivalence import Comparison, Difference, compare
from pytest_sparkperf.core.equivalence_report import EquivalenceReport, describe, report_lines
from pytest_sparkperf.core.logprobs import Choice
from pytest_sparkperf.core.same_output import Item, judge_line, not_judged
from pytest_sparkperf.core.toolcheck import Finding

EQUAL = Comparison("equal", 512)


def near_tie() -> Comparison:
    """Return the comparison of a published near-tie at token 99."""
    found = case("G01")
    arms = [
        generation(found[arm]["tokens"], {99: Choice(own, found[arm]["top_logprobs_at_first_diff"])})
        for arm, own in (("off", "a"), ("on", "the"))
    ]
    return compare(*arms)


def test_equal_lines_are_short() -> None:
    report = EquivalenceReport(
        lines=(
            judge_line("plain", [Item(f"p{at}", EQUAL, control=EQUAL) for at in range(12)]),
            not_judged("conversation, warm cache", "prefix caching is off on off"),
        ),
        names=("k=0", "k=3"),
        acceptance=Acceptance(1136, 3408, 1944),
        flags={"k=0": "", "k=3": "degenerate 3/12"},
    )

    assert report_lines(report) == (
        "output equivalence at temperature 0: k=0 against k=3",
        "  plain: PASS 12 of 12 equal, off against itself 12 of 12, the same over 512 tokens",
        "  conversation, warm cache: not judged: prefix caching is off on off",
        "  acceptance 0.570, length 2.711",
        "  flags of k=3: degenerate 3/12",
    )
    assert (report.verdict.outcome, report.verdict.reason) == ("PASS", "12 of 12 answers equal")


def test_everything_that_is_not_equal_has_its_line() -> None:
    broken = Finding("broken_json", "'{{'", 0)
    items = [
        Item("code", near_tie(), control=EQUAL, on_stable=True),
        Item("chat", EQUAL, control=Comparison("divergent", 7, Difference("tokens", 7, "token"))),
        Item("tool-single", EQUAL, control=EQUAL, on_faults=(broken,)),
        Item("tool-nested", EQUAL, control=EQUAL, on_faults=(broken,), off_faults=(broken,)),
    ]
    report = EquivalenceReport(
        (judge_line("plain", items),), deaths=("the server died at p (truncated)",), second_start=True
    )

    plain = (
        "  plain: INCONCLUSIVE 3 of 4 equal, off against itself 3 of 4, the same over 99 to 512 tokens: "
        "2 of 4 answers valid, off 3 of 4 (tool-single: broken_json in call 0: '{{')"
    )
    code = (
        "    code: near-tie at token 99: 'a' (-0.6931) off, 'the' (-0.6925) on; gap 0.0020 and 0.0032; "
        "top two 0.0020 and 0.0032 apart, again and again"
    )
    rule = (
        "  near-tie: both answers had both tokens among their best, at most 0.25 nats apart in each, "
        "and saw each of them alike within as much"
    )
    invariant = (
        "  exact equality: VLLM_BATCH_INVARIANT=1 on both servers, where vLLM supports it "
        "(about half the speed)"
    )
    assert report_lines(report) == (
        "output equivalence at temperature 0: off against on",
        plain,
        code,
        "    chat: off against itself divergent at token 7",
        "    tool-single: broken_json in call 0: '{{' (on)",
        "    tool-nested: broken_json in call 0: '{{' (both arms)",
        "  off was started a second time, since a divergence would have failed the test",
        rule,
        invariant,
        "  the server died at p (truncated)",
    )


@pytest.mark.parametrize(
    ("comparison", "text"),
    [
        (None, "not compared"),
        (EQUAL, "equal over 512 tokens"),
        (
            Comparison("divergent", 3, Difference("tokens", 3, "token", Choice("a", {"a": -0.5}))),
            (
                "divergent at token 3: 'a' (-0.5000) off, unknown on; gap unknown and unknown; top two "
                "unknown and unknown apart"
            ),
        ),
        (
            Comparison(
                "divergent", 3, Difference("tool_calls", 0, "call", names=("altered_name in call 0",))
            ),
            "divergent in tool calls at call 0: altered_name in call 0",
        ),
        (
            Comparison("launch", 3, Difference("reasoning", 3, "character")),
            "launch in reasoning at character 3",
        ),
    ],
)
def test_a_comparison_reads_as_one_line(comparison: Comparison | None, text: str) -> None:
    assert describe(comparison) == text


def test_a_draft_of_which_nothing_is_accepted_is_named() -> None:
    report = EquivalenceReport((), acceptance=Acceptance(325, 650, 0))

    assert report_lines(report)[-1] == (
        "  none of 650 drafted tokens was accepted: the draft does not belong to this model, or is broken"
    )


def test_acceptance_without_drafts_is_unknown() -> None:
    report = EquivalenceReport((), acceptance=Acceptance(0, 0, 0))

    assert report_lines(report)[-1] == "  acceptance unknown"
