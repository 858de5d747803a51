from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_sparkperf.core.claim import Claim, ceiling, floor, margin, speedup
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.heat import Allowance, allowance
from pytest_sparkperf.core.judge import (
    Look,
    Terms,
    between_se,
    decide,
    forecast,
    half_widths,
    interval,
    judge_fact,
    smallest_margin,
    to_verdict,
)
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.summary import Baseline, Summary, baseline_of, summarize

PROMPTS = (0, 1, 2, 3)
EXAMPLES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "statistics" / "examples.json").read_text(encoding="utf-8")
)
# The examples were worked with this launch term; the default is wider.
WORKED = Constants(launch_sd=0.004)

windows = st.lists(st.lists(st.floats(-0.2, 0.2), min_size=4, max_size=4), min_size=3, max_size=12)


def calm(theta: float, rounds: int = 12, sd: float = 0.005, **more: Any) -> Summary:
    return Summary(theta, sd, rounds, 4 * rounds, more.get("clamped", 0), more.get("drift", 0.0))


def judge_example(example: dict[str, Any]) -> Look:
    rounds = [[math.log(value) for value in row] for row in example["rounds"]]
    stored, paired = example["baseline"], example.get("paired", False)
    claim = Claim(
        "gate",
        "decode_tok_s",
        "paired" if paired else "baseline" if stored else "absolute",
        example["mark"],
        example["line"],
        example["mark"],
    )
    baseline = baseline_of("decode_tok_s", stored) if stored else None
    terms = Terms(WORKED, tuple(example["looks"]), example.get("gates", 1), baseline)
    heat = allowance(example.get("temp"), example.get("ref_temp"), WORKED)
    return decide(summarize(rounds, example["prompts"], WORKED), claim, terms, heat)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["name"] for example in EXAMPLES])
def test_worked_examples(example: dict[str, Any]) -> None:
    expected = example["expect"]

    look = judge_example(example)

    assert look.outcome == expected["outcome"]
    for name in ("estimate", "low", "high", "mde"):
        assert getattr(look, name) == pytest.approx(expected[name], rel=1e-9), name


def test_the_lines_of_the_worked_examples_are_those_of_the_constructors() -> None:
    lines = {(example["line"], float(example["mark"])) for example in EXAMPLES}

    built = [
        floor("min_decode", "decode_tok_s", 100.0, 0.02),
        margin("decode_tok_s", 0.05, paired=False),
        margin("decode_tok_s", 0.03, paired=True),
        speedup("decode_tok_s", 1.25, 0.02),
        speedup("decode_tok_s", 1.03, 0.02),
    ]

    assert {(claim.line, claim.mark) for claim in built} == lines


@pytest.mark.parametrize(
    ("theta", "outcome"), [(math.log(103), "PASS"), (math.log(97), "FAIL"), (math.log(100), "INCONCLUSIVE")]
)
def test_without_tolerance_a_server_on_its_limit_is_not_decided(theta: float, outcome: str) -> None:
    assert decide(calm(theta), floor("min_decode", "decode_tok_s", 100)).outcome == outcome


def test_a_latency_limit_is_judged_in_its_own_unit() -> None:
    claim = ceiling("max_tpot_ms", "tpot_ms", 10.0)

    passed, failed = decide(calm(-math.log(9.5)), claim), decide(calm(-math.log(10.5)), claim)

    assert (passed.outcome, failed.outcome) == ("PASS", "FAIL")
    assert passed.estimate == pytest.approx(9.5)
    assert passed.low is not None
    assert passed.high is not None
    assert passed.low < 9.5 < passed.high < 10.0
    assert passed.mde is not None
    assert passed.mde > 10.0


@given(windows, st.floats(0.8, 1.25))
def test_a_latency_claim_is_the_mirror_of_a_rate_claim(rounds: list[list[float]], limit: float) -> None:
    summary = summarize(rounds, PROMPTS)
    rate = decide(summary, floor("min_decode", "decode_tok_s", limit))
    latency = decide(summary, ceiling("max_tpot_ms", "tpot_ms", 1 / limit))

    assert latency.outcome == rate.outcome
    assert rate.low is not None
    assert rate.high is not None
    assert latency.low == pytest.approx(1 / rate.high)
    assert latency.high == pytest.approx(1 / rate.low)


@given(windows, st.floats(0.01, 100))
def test_scaling_all_rates_scales_estimate_and_bounds(rounds: list[list[float]], factor: float) -> None:
    scaled = [[value + math.log(factor) for value in row] for row in rounds]
    before = decide(summarize(rounds, PROMPTS), floor("min_decode", "decode_tok_s", 1.0))
    after = decide(summarize(scaled, PROMPTS), floor("min_decode", "decode_tok_s", 1.0))

    assert before.low is not None
    assert before.high is not None
    assert after.estimate == pytest.approx(before.estimate * factor)
    assert after.low == pytest.approx(before.low * factor)
    assert after.high == pytest.approx(before.high * factor)


@given(windows, st.floats(0.0, 0.5), st.sampled_from(["margin", "speedup"]))
def test_slowing_every_sample_of_b_never_makes_a_pass(
    ratios: list[list[float]], slower: float, gate: str
) -> None:
    claim = margin("decode_tok_s", 0.03, paired=True) if gate == "margin" else speedup("decode_tok_s", 1.05)
    assume(decide(summarize(ratios, PROMPTS), claim).outcome != "PASS")
    slowed = [[value - slower for value in row] for row in ratios]

    assert decide(summarize(slowed, PROMPTS), claim).outcome != "PASS"


@given(windows)
def test_a_look_never_passes_what_lies_on_the_wrong_side(rounds: list[list[float]]) -> None:
    look = decide(summarize(rounds, PROMPTS), floor("min_decode", "decode_tok_s", 1.0))

    assert look.outcome != "PASS" or look.estimate > 1.0
    assert look.outcome != "FAIL" or look.estimate < 1.0


@pytest.mark.parametrize(("launches", "expected"), [(1, 0.006 * math.sqrt(2)), (2, 0.006)])
def test_the_launch_term_shrinks_with_starts_per_arm(launches: int, expected: float) -> None:
    assert between_se("paired", Terms(launches=launches)) == pytest.approx(expected)


def test_alpha_is_divided_by_the_number_of_looks() -> None:
    one = half_widths("absolute", 0.01, 3, Terms(looks=(3,)), 0.01)
    five = half_widths("absolute", 0.01, 3, Terms(), 0.01)

    assert one == pytest.approx((3.3649 * 0.01 / math.sqrt(3), 0.0), rel=1e-4)
    assert five == pytest.approx((5.0302 * 0.01 / math.sqrt(3), 0.0), rel=1e-4)


def test_the_gates_of_a_session_share_the_error_of_fail_only() -> None:
    claim = floor("min_decode", "decode_tok_s", 100)
    alone, one_of_twenty = (decide(calm(math.log(99.4)), claim, Terms(gates=gates)) for gates in (1, 20))

    assert (alone.outcome, one_of_twenty.outcome) == ("FAIL", "INCONCLUSIVE")
    assert alone.low == one_of_twenty.low


@pytest.mark.parametrize(("gap_c", "outcome"), [(25.0, "INCONCLUSIVE"), (0.0, "PASS"), (-25.0, "PASS")])
def test_a_cold_machine_cannot_pass_a_close_call(gap_c: float, outcome: str) -> None:
    heat = allowance(80.0 - gap_c, 80.0, ASSUMED)

    assert decide(calm(math.log(103)), floor("min_decode", "decode_tok_s", 100), heat=heat).outcome == outcome


@pytest.mark.parametrize(
    "claim",
    [
        margin("decode_tok_s", 0.03, paired=True),
        floor("min_acceptance_length", "acceptance_length", 1.0),
    ],
)
def test_alternation_and_acceptance_need_no_allowance(claim: Claim) -> None:
    heat = Allowance(0.1, 0.1, 40.0)

    assert decide(calm(0.0), claim, heat=heat) == decide(calm(0.0), claim)


def test_a_budget_that_is_spent_says_what_would_help() -> None:
    look = decide(calm(math.log(100)), floor("min_decode", "decode_tok_s", 100))

    assert look.reason == (
        "12 rounds leave 99.51 to 100.5 tok/s, which does not settle the limit of 100: "
        "move the limit, give it a tolerance, or measure on a quieter machine"
    )


def test_a_small_budget_that_is_spent_names_the_larger_one() -> None:
    terms = Terms(looks=(3,))
    look = decide(calm(0.0, rounds=3, sd=0.05), speedup("decode_tok_s", 1.03), terms)

    assert look.reason == (
        "3 rounds leave 0.9056 to 1.104, which does not settle the limit of 1.03: raise max_rounds "
        "(up to 12), move the limit, or measure on a quieter machine"
    )


def test_a_baseline_whose_runs_scatter_ends_early_and_says_so() -> None:
    terms = Terms(baseline=baseline_of("decode_tok_s", [582.3, 560.3, 564.6, 564.0, 573.9]))
    look = decide(calm(math.log(541), rounds=6), margin("decode_tok_s", 0.05, paired=False), terms)

    assert (look.outcome, look.rounds) == ("INCONCLUSIVE", 6)
    assert look.reason == (
        "the spread between runs is the limit, more requests would not help: "
        "record more baseline runs, or compare with a second server (against=...)"
    )


def test_an_ab_limited_by_its_starts_ends_early_and_says_so() -> None:
    look = decide(calm(-0.02, rounds=8, sd=0.003), margin("decode_tok_s", 0.03, paired=True))

    assert look.reason == (
        "the spread between starts of a server is the limit, more requests would not help: "
        "measure it on this machine (sparkperf calibrate), or allow a wider margin"
    )


def test_an_open_allowance_keeps_sampling_and_says_why() -> None:
    look = decide(
        calm(math.log(103), rounds=8),
        floor("min_decode", "decode_tok_s", 100),
        heat=allowance(55.0, 80.0, ASSUMED),
    )

    assert look.outcome == "MORE"
    assert look.reason == (
        "the GPU is 25 C colder than its reference and may read fast: "
        "keep it under load for longer, then measure again"
    )


def test_a_machine_hotter_than_its_reference_is_named() -> None:
    look = decide(
        calm(math.log(98), rounds=8),
        floor("min_decode", "decode_tok_s", 100),
        heat=allowance(92.0, 80.0, ASSUMED),
    )

    assert look.outcome == "MORE"
    assert look.reason == (
        "the GPU is 12 C hotter than its reference and may read slow: "
        "let it cool, or record a baseline at this temperature"
    )


def test_outliers_and_drift_are_said_beside_any_verdict() -> None:
    look = decide(calm(math.log(110), clamped=6, drift=-0.031), floor("min_decode", "decode_tok_s", 100))

    assert look.outcome == "PASS"
    assert look.reason == (
        "6 of 48 requests were outliers and pulled back: look for other load on the machine; "
        "the speed changed by -3.1 % over the window"
    )


def test_a_forecast_names_the_values_that_stay_open() -> None:
    expected = forecast(floor("min_decode", "decode_tok_s", 100))

    assert expected.text == "can only be judged outside 98.65 to 101.4 tok/s"
    assert expected.low == pytest.approx(98.65, abs=0.01)
    assert expected.high == pytest.approx(101.37, abs=0.01)


def test_a_forecast_of_a_latency_is_in_its_unit() -> None:
    expected = forecast(ceiling("max_tpot_ms", "tpot_ms", 10), sd=0.0005)

    assert expected.text == "can only be judged outside 9.993 to 10.01 ms"


def test_a_wide_margin_is_forecast_to_decide_everywhere() -> None:
    expected = forecast(margin("decode_tok_s", 0.2, paired=True))

    assert (expected.low, expected.high, expected.text) == (None, None, "can be judged at every value")


@pytest.mark.parametrize(("runs", "margin_percent"), [(5, 3.1), (10, 2.5)])
def test_the_margin_that_stored_runs_can_hold(runs: int, margin_percent: float) -> None:
    """The runs scatter by 0.4 %; the study's figures use that for the truth, here it is blended."""
    step = 0.004 * math.sqrt((runs - 1) / runs)
    thetas = tuple(step * (1 if index % 2 else -1) for index in range(runs))

    found = 100 * smallest_margin(Baseline(thetas))

    assert margin_percent < found < margin_percent + 0.8


def test_the_interval_of_a_figure_has_no_allowance() -> None:
    claim = floor("min_decode", "decode_tok_s", 100)
    look = decide(calm(math.log(103)), claim)

    assert interval(claim, calm(math.log(103))) == pytest.approx((look.low, look.high))


def test_a_look_that_would_go_on_is_inconclusive_as_a_verdict() -> None:
    claim = floor("min_decode", "decode_tok_s", 100)
    verdict = to_verdict(claim, Look("MORE", 100.0, 98.0, 102.0, 97.0, 4), "the time budget is spent")

    assert verdict == Verdict(
        "min_decode", "INCONCLUSIVE", 100.0, 98.0, 102.0, 100, 97.0, "the time budget is spent", 4
    )


@pytest.mark.parametrize(
    ("value", "higher_is_better", "outcome"),
    [(70.0, False, "PASS"), (71.0, False, "FAIL"), (70.0, True, "PASS"), (69.0, True, "FAIL")],
)
def test_a_figure_without_noise_is_compared_as_it_is(
    value: float, higher_is_better: bool, outcome: str
) -> None:
    assert judge_fact("max_memory_gib", value, 70.0, higher_is_better=higher_is_better).outcome == outcome


def test_a_fact_that_could_not_be_read_is_an_error() -> None:
    verdict = judge_fact("max_memory_gib", None, 70.0, higher_is_better=False)

    assert (verdict.outcome, verdict.reason) == (
        "ERROR",
        "this figure could not be read from the server: a missing figure is never judged",
    )


def test_a_baseline_claim_without_a_baseline_is_a_mistake() -> None:
    with pytest.raises(ValueError) as refused:
        decide(calm(0.0), margin("decode_tok_s", 0.05, paired=False))

    assert str(refused.value) == "a baseline claim needs terms with a baseline"
