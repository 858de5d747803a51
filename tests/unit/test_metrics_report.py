"""Facts of two scrapes: figures, what is missing, and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.core.exposition import Scrape, parse_exposition
from pytest_sparkperf.core.metrics_report import metrics_facts, metrics_fault, metrics_lines

DATA = Path(__file__).parent.parent / "data" / "metrics"
NOTHING_ACCEPTED = """\
vllm:spec_decode_num_drafts_total 325
vllm:spec_decode_num_draft_tokens_total 650
vllm:spec_decode_num_accepted_tokens_total 0
"""


def scrape(name: str) -> Scrape:
    return parse_exposition((DATA / f"{name}.prom").read_text(encoding="utf-8"))


def test_growth_between_two_scrapes_of_the_h200() -> None:
    facts = metrics_facts(scrape("h200_k3_before"), scrape("h200_k3_after"))

    assert facts == {
        "since": "before",
        "estimator": "token-weighted",
        "acceptance_rate": pytest.approx(922 / 1422),
        "acceptance_length": pytest.approx(1 + 922 / 528),
        "acceptance_per_position": [pytest.approx(count / 528) for count in (387, 316, 219)],
        "k": 3,
        "drafts": 528,
        "draft_tokens": 1422,
        "accepted_tokens": 922,
        "wasted_tokens": 500,
        "reason": None,
        "generation_tokens": facts["generation_tokens"],
        "prompt_tokens": facts["prompt_tokens"],
        "prefix_cache_hits": facts["prefix_cache_hits"],
        "prefix_cache_queries": facts["prefix_cache_queries"],
        "preemptions": facts["preemptions"],
        "prefix_cache_hit_rate": None,
        "malformed_lines": 0,
    }
    assert metrics_fault(facts) is None


def test_lines_leave_out_what_is_not_known() -> None:
    facts = metrics_facts(scrape("h200_k3_before"), scrape("h200_k3_after"))

    lines = metrics_lines(facts)

    assert lines[:5] == (
        "since: before",
        "estimator: token-weighted",
        "acceptance_rate: 0.648",
        "acceptance_length: 2.746",
        "acceptance_per_position: 0.733, 0.598, 0.415",
    )
    assert not [line for line in lines if "None" in line or line.startswith(("malformed", "reason"))]


def test_one_scrape_counts_from_the_start() -> None:
    facts = metrics_facts(None, scrape("dp2"))

    assert (facts["since"], facts["drafts"], facts["acceptance_rate"]) == ("start", 150, pytest.approx(0.6))


@pytest.mark.parametrize("names", [("old_cache_names",), ("new_cache_names",)])
def test_cache_hits_are_read_in_both_spellings(names: tuple[str]) -> None:
    assert metrics_facts(None, scrape(names[0]))["prefix_cache_hit_rate"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (None, "empty", "no spec-decode series: /metrics answered with an empty body"),
        (
            "empty",
            "h200_k3_after",
            "no acceptance: the first scrape of /metrics is empty, there is nothing to subtract",
        ),
        (None, "cpu_off_after", None),
        (None, "zero_drafts", None),
        (None, "diffusion", None),
    ],
)
def test_only_what_cannot_be_read_is_a_fault(before: str | None, after: str, fault: str | None) -> None:
    facts = metrics_facts(scrape(before) if before else None, scrape(after))

    assert metrics_fault(facts) == fault
    assert facts["acceptance_rate"] is None
    assert facts["reason"] is not None


def test_a_restart_between_the_scrapes_is_a_fault() -> None:
    facts = metrics_facts(scrape("h200_k3_after"), scrape("h200_k3_before"))

    fault = metrics_fault(facts)
    assert fault is not None
    assert fault.startswith("no acceptance: the server restarted between the two scrapes (")
    assert facts["generation_tokens"] is None


def test_drafts_of_which_none_is_accepted_are_a_fault() -> None:
    facts = metrics_facts(None, parse_exposition(NOTHING_ACCEPTED))

    assert facts["acceptance_rate"] == 0
    assert metrics_fault(facts) == (
        "none of 650 drafted tokens was accepted: the draft is broken or not this model's"
    )


def test_lines_that_could_not_be_read_are_counted() -> None:
    facts = metrics_facts(parse_exposition("x y z\n"), parse_exposition("x y z\n" + NOTHING_ACCEPTED))

    assert facts["malformed_lines"] == 2
    assert metrics_lines(facts)[-1] == "malformed_lines: 2"
