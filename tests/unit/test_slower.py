"""A server that gets slower must not come to PASS: what holds, what does not, and why.

It holds when each prompt gets slower by a factor of its own, the same in every round: what a slower build is.
Then every spread stays as it was and only the estimate moves. It does not hold for samples that are merely
slower one by one: slowing the fast ones most makes a window calmer, and a calmer window has a narrower
interval. What is left then is that one line cannot be crossed both ways, unless requests were pulled back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_sparkperf.core.claim import Claim, ceiling, floor, margin, speedup
from pytest_sparkperf.core.judge import Look, Terms, decide
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.quantile import decide_quantile
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.sampling import Plan, Sampler
from pytest_sparkperf.core.summary import Baseline, summarize

METRIC = "decode_tok_s"
CELLS = (0, 1, 0, 1)
RANK = {"FAIL": 0, "INCONCLUSIVE": 1, "PASS": 2}
STORED = Baseline((0.0, 0.004, -0.006))
CLAIMS = {
    "limit": floor("min_decode", METRIC, 1.0),
    "limit with tolerance": floor("min_decode", METRIC, 1.0, 0.02),
    "baseline": margin(METRIC, 0.05, paired=False),
    "margin of an A/B": margin(METRIC, 0.03, paired=True),
    "speedup": speedup(METRIC, 1.05),
}
ONE_LINE = floor("min_decode", METRIC, 1.0)
LOOK = st.integers(3, 12)

Window = list[list[float]]


def windows(rounds: int, spread: float = 0.04) -> st.SearchStrategy[Window]:
    row = st.lists(st.floats(-spread, spread), min_size=len(CELLS), max_size=len(CELLS))
    return st.lists(row, min_size=rounds, max_size=rounds)


def terms(claim: Claim) -> Terms:
    return Terms(baseline=STORED if claim.kind == "baseline" else None)


def look(window: Sequence[Sequence[float]], claim: Claim) -> Look:
    return decide(summarize(window, CELLS), claim, terms(claim))


def sample(
    passes: Sequence[Sequence[float]], claim: Claim, slower: tuple[float, float] = (0.0, 0.0)
) -> Verdict:
    """Let the sampler judge log speeds of B, each prompt slower by its own share; A stays at 1."""
    paired = claim.kind == "paired"
    sampler = Sampler(Plan(CELLS, paired=paired), [claim], {METRIC: STORED})
    while (step := sampler.next_pass()) is not None:
        row = passes[step.index]
        speeds = [value - slower[prompt] for value, prompt in zip(row, CELLS, strict=True)]
        sampler.add(
            {
                (cell, arm): {METRIC: math.exp(speeds[cell]) if arm == SUBJECT else 1.0}
                for cell, arm in step.order
            }
        )
    (verdict,) = sampler.outcome
    return verdict


# ---------------------------------------------------------------------- what holds
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@given(rounds=LOOK.flatmap(windows), shift=st.floats(-0.1, 0.1), slower=st.tuples(*2 * [st.floats(0, 0.1)]))
def test_a_look_never_comes_to_pass_when_each_prompt_gets_slower(
    claim: Claim, rounds: Window, shift: float, slower: tuple[float, float]
) -> None:
    before = [[value + shift for value in row] for row in rounds]
    after = [[value - slower[p] for value, p in zip(row, CELLS, strict=True)] for row in before]

    assert look(before, claim).outcome == "PASS" or look(after, claim).outcome != "PASS"


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@given(
    passes=windows(13, spread=0.02), shift=st.floats(-0.1, 0.1), slower=st.tuples(*2 * [st.floats(0, 0.1)])
)
def test_a_whole_sampling_ends_no_better_when_each_prompt_gets_slower(
    claim: Claim, passes: Window, shift: float, slower: tuple[float, float]
) -> None:
    shifted = [[value + shift for value in row] for row in passes]

    before, after = sample(shifted, claim), sample(shifted, claim, slower)

    assert RANK[after.outcome] <= RANK[before.outcome]


@given(rounds=LOOK.flatmap(windows), data=st.data())
def test_one_line_that_failed_never_passes_when_samples_get_slower_one_by_one(
    rounds: Window, data: st.DataObject
) -> None:
    losses = data.draw(windows(len(rounds)))
    after = [
        [x - abs(loss) for x, loss in zip(*rows, strict=True)] for rows in zip(rounds, losses, strict=True)
    ]
    assume(not summarize(rounds, CELLS).clamped_requests and not summarize(after, CELLS).clamped_requests)

    assert summarize(after, CELLS).theta <= summarize(rounds, CELLS).theta + 1e-12
    assert look(rounds, ONE_LINE).outcome != "FAIL" or look(after, ONE_LINE).outcome != "PASS"


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(0, 50)), min_size=60, max_size=90), st.floats(1, 150))
def test_a_percentile_never_comes_to_pass_whichever_samples_get_slower(
    samples: list[tuple[float, float]], limit: float
) -> None:
    claim = ceiling("max_ttft_p90_ms", "ttft_ms", limit, quantile=0.9)
    before = decide_quantile([value for value, _ in samples], claim, 12)
    after = decide_quantile([value + more for value, more in samples], claim, 12)

    assert RANK[after.outcome] <= RANK[before.outcome]


# ---------------------------------------------------------------------- what does not
def test_a_calmer_window_may_pass_though_every_sample_got_slower() -> None:
    noisy = [[0.02] * 4, [0.11] * 4, [0.02] * 4]
    calm = [[0.019] * 4, [0.02] * 4, [0.019] * 4]
    claim = floor("min_decode", METRIC, 0.98)

    assert slower_everywhere(noisy, calm)
    assert (look(noisy, claim).outcome, look(calm, claim).outcome) == ("MORE", "PASS")


def test_between_two_lines_either_verdict_may_come_so_a_fail_may_turn_into_a_pass() -> None:
    claim = CLAIMS["limit with tolerance"]
    # One round is fast, which widens the interval; requests alternate, so that none counts as an outlier.
    one_fast = [
        [-0.0132 + (0.0355 if number == 5 else 0.0) + x for x in alternating(number)] for number in RUN
    ]
    none_fast = [[-0.0133 + x for x in alternating(number)] for number in RUN]

    assert slower_everywhere(one_fast, none_fast)
    assert (look(one_fast, claim).outcome, look(none_fast, claim).outcome) == ("FAIL", "PASS")


def test_where_half_the_requests_are_pulled_back_a_fail_may_turn_into_a_pass_and_the_verdict_tells() -> None:
    # A calm half keeps the median. The other half is far below: while it jumps, outliers begin far out.
    jumping = [[0.0, 0.0, *2 * [0.0 if number == 0 else -1.0 + 0.1 * (number % 2)]] for number in RUN]
    steady = [[-1e-6, -1e-6, *2 * [-1e-6 if number == 0 else -1.0 - 1e-6]] for number in RUN]
    claim = floor("min_decode", METRIC, 0.97)
    before, after = look(jumping, claim), look(steady, claim)

    assert slower_everywhere(jumping, steady)
    assert (before.outcome, after.outcome) == ("FAIL", "PASS")
    assert after.reason == (
        "22 of 48 requests were outliers and pulled back: look for other load on the machine"
    )


RUN = range(12)


def alternating(number: int) -> list[float]:
    return [0.01 if (number + cell) % 2 else -0.01 for cell in range(len(CELLS))]


def slower_everywhere(before: Window, after: Window) -> bool:
    return all(b < a for rows in zip(before, after, strict=True) for a, b in zip(*rows, strict=True))
