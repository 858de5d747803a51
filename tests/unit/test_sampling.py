from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sparkperf.core.claim import Claim, ceiling, floor, margin, speedup
from pytest_sparkperf.core.constants import Constants
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.heat import Thermal
from pytest_sparkperf.core.order import Step, cells_for
from pytest_sparkperf.core.sampling import Pass, Plan, Sampler
from pytest_sparkperf.core.summary import baseline_of

PLAN = Plan(cells_for(4))
FLOOR = floor("min_decode", "decode_tok_s", 100)
PASS_S = 10.0

Figures = Mapping[str, float | None]
Server = Callable[[Pass, Step], Figures]


def steady(rate: float, *, noise: float = 0.0, seed: int = 0) -> Server:
    source = random.Random(seed)

    def serve(_: Pass, step: Step) -> Figures:
        cell, _arm = step
        value = rate * math.exp(0.05 * (cell - 1.5) + source.gauss(0, noise))
        return {"decode_tok_s": value, "tpot_ms": 1000 / value, "ttft_ms": 200.0}

    return serve


def run(
    sampler: Sampler,
    server: Server,
    *,
    temperature: Callable[[float], float | None] = lambda _: None,
    limit: int = 200,
) -> list[Pass]:
    """Serve a sampler until it is finished; a pass takes PASS_S."""
    passes: list[Pass] = []
    while (current := sampler.next_pass()) is not None:
        passes.append(current)
        assert len(passes) < limit, "sampling does not end"
        at_s = PASS_S * len(passes)
        values: Mapping[Step, Figures] = {step: server(current, step) for step in current.order}
        sampler.add(values, temperature_c=temperature(at_s), at_s=at_s)
    return passes


# ---------------------------------------------------------------------- protocol
def test_a_fast_server_passes_at_the_first_look() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    passes = run(sampler, steady(110))
    (verdict,) = sampler.outcome

    assert (verdict.gate, verdict.outcome, verdict.rounds) == ("min_decode", "PASS", 3)
    assert verdict.estimate == pytest.approx(110)
    assert [current.kind for current in passes] == ["warm-up", "warm-up", "round", "round"]
    assert sampler.round_passes == (1, 2, 3)
    assert (sampler.finished, sampler.state, sampler.reason) == (True, "finished", "")


def test_a_slow_server_fails() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    run(sampler, steady(95))

    assert sampler.outcome[0].outcome == "FAIL"


def test_a_server_on_the_limit_spends_the_budget() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    run(sampler, steady(100))
    (verdict,) = sampler.outcome

    assert (verdict.outcome, verdict.rounds) == ("INCONCLUSIVE", 12)
    assert verdict.reason == (
        "12 rounds leave 99.54 to 100.5 tok/s, which does not settle the limit of 100: "
        "move the limit, give it a tolerance, or measure on a quieter machine"
    )


def test_the_next_pass_stays_the_same_until_it_is_added() -> None:
    sampler = Sampler(PLAN, [FLOOR])

    assert (
        sampler.next_pass()
        == sampler.next_pass()
        == Pass(0, "warm-up", ((0, "B"), (1, "B"), (2, "B"), (3, "B")))
    )


def test_an_ab_sends_every_prompt_to_both_and_flips_the_order() -> None:
    sampler = Sampler(replace(PLAN, paired=True), [speedup("decode_tok_s", 1.1)])
    passes = run(sampler, steady(100))

    assert [arm for _, arm in passes[0].order] == list("ABBABAAB")
    assert [arm for _, arm in passes[1].order] == list("BAABABBA")


def test_a_pass_with_a_step_missing_is_refused() -> None:
    sampler = Sampler(Plan((0, 1)), [FLOOR])

    with pytest.raises(ValueError) as refused:
        sampler.add({(0, "B"): {}})

    assert str(refused.value) == ("a pass needs figures for the steps [(0, 'B'), (1, 'B')], got [(0, 'B')]")


def test_nothing_can_be_added_when_sampling_is_over() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    run(sampler, steady(110))

    with pytest.raises(RuntimeError) as refused:
        sampler.add({})

    assert str(refused.value) == "sampling is over: next_pass() gave None, nothing more can be added"


def test_there_is_no_outcome_while_sampling_goes_on() -> None:
    with pytest.raises(RuntimeError) as refused:
        Sampler(PLAN, [FLOOR]).outcome  # noqa: B018 the access is what is tested

    assert str(refused.value) == "sampling goes on: there are verdicts when next_pass() gives None"


@settings(max_examples=60, deadline=None)
@given(st.floats(94, 106), st.floats(0, 0.05), st.integers(0, 10_000), st.integers(3, 12))
def test_sampling_stops_only_at_looks(rate: float, noise: float, seed: int, max_rounds: int) -> None:
    sampler = Sampler(replace(PLAN, max_rounds=max_rounds), [FLOOR])
    run(sampler, steady(rate, noise=noise, seed=seed))
    (verdict,) = sampler.outcome

    assert verdict.rounds in {look for look in (3, 4, 6, 8) if look < max_rounds} | {max_rounds, 0}
    assert (verdict.rounds == 0) is verdict.reason.startswith("never became steady")


@settings(max_examples=40, deadline=None)
@given(st.floats(90, 110), st.floats(0.001, 0.03), st.integers(0, 10_000))
def test_a_latency_claim_is_the_mirror_of_a_rate_claim(rate: float, noise: float, seed: int) -> None:
    sampler = Sampler(PLAN, [FLOOR, ceiling("max_tpot_ms", "tpot_ms", 10.0)])
    run(sampler, steady(rate, noise=noise, seed=seed))
    decode, tpot = sampler.outcome

    assert (tpot.outcome, tpot.rounds) == (decode.outcome, decode.rounds)


# ---------------------------------------------------------------------- several claims, or none
def test_a_claim_that_is_decided_stays_while_another_is_measured_on() -> None:
    close = floor("min_decode", "decode_tok_s", 100)
    easy = ceiling("max_ttft_ms", "ttft_ms", 400)
    sampler = Sampler(PLAN, [close, easy])
    run(sampler, steady(100))

    assert [(v.gate, v.outcome, v.rounds) for v in sampler.outcome] == [
        ("min_decode", "INCONCLUSIVE", 12),
        ("max_ttft_ms", "PASS", 3),
    ]


def test_absolute_limits_of_an_ab_are_about_the_server_under_test() -> None:
    sampler = Sampler(replace(PLAN, paired=True), [FLOOR, speedup("decode_tok_s", 1.5)])

    def server(current: Pass, step: Step) -> Figures:
        return steady(220 if step[1] == "B" else 110)(current, step)

    run(sampler, server)

    assert [v.outcome for v in sampler.outcome] == ["PASS", "PASS"]
    assert [v.estimate for v in sampler.outcome] == pytest.approx([220, 2.0])
    ratio = sampler.summary("decode_tok_s", None)
    assert ratio is not None
    assert math.exp(ratio.theta) == pytest.approx(2.0)


@pytest.mark.parametrize(("today", "outcome"), [(572.0, "PASS"), (517.0, "FAIL")])
def test_today_against_the_stored_runs(today: float, outcome: str) -> None:
    baseline = baseline_of("decode_tok_s", [582.3, 560.3, 564.6, 564.0, 573.9])
    sampler = Sampler(PLAN, [margin("decode_tok_s", 0.05, paired=False)], {"decode_tok_s": baseline})
    run(sampler, steady(today))

    assert sampler.outcome[0].outcome == outcome


@pytest.mark.parametrize(("noise", "rounds"), [(0.0, 3), (0.2, 6)])
def test_without_limits_it_ends_at_two_percent_or_six_rounds(noise: float, rounds: int) -> None:
    sampler = Sampler(replace(PLAN, steady_metric="tpot_ms"))
    calm = steady(100)
    source = random.Random(3)

    def server(current: Pass, step: Step) -> Figures:
        figures = calm(current, step)
        factor = math.exp(source.gauss(0, noise)) if current.kind == "round" else 1.0
        return {name: (value or 0) * factor for name, value in figures.items()}

    run(sampler, server)

    assert (sampler.outcome, sampler.rounds) == ((), rounds)


def test_a_baseline_is_recorded_from_more_rounds_than_the_verdict_needs() -> None:
    sampler = Sampler(replace(PLAN, min_rounds=8), [FLOOR])
    run(sampler, steady(110))

    assert (sampler.outcome[0].rounds, sampler.rounds) == (3, 8)


@pytest.mark.parametrize("cells", [1, 2])
def test_a_burst_may_be_the_cell(cells: int) -> None:
    sampler = Sampler(Plan(tuple(range(cells)), min_passes=4), [FLOOR])
    passes = run(sampler, steady(110))

    assert sampler.outcome[0].outcome == "PASS"
    assert [current.kind for current in passes][:5] == ["warm-up"] * 4 + ["round"]


# ---------------------------------------------------------------------- warm-up
def test_a_climbing_server_is_warmed_until_it_stands() -> None:
    def server(current: Pass, step: Step) -> Figures:
        return steady(110 * (0.75, 0.9, 0.97, 1.0, 1.01)[min(current.index, 4)])(current, step)

    sampler = Sampler(PLAN, [FLOOR])
    passes = run(sampler, server)

    assert [current.kind for current in passes] == ["warm-up"] * 5 + ["round"] * 2
    assert sampler.round_passes == (4, 5, 6)


def test_a_pass_in_which_kernels_compiled_is_not_round_one() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    for compiling in (True, True, True, False):
        current = sampler.next_pass()
        assert current is not None
        sampler.add({step: {"decode_tok_s": 110.0} for step in current.order}, still_compiling=compiling)

    assert sampler.round_passes == (3,)


def test_a_server_that_never_becomes_steady_is_not_judged() -> None:
    def server(current: Pass, step: Step) -> Figures:
        return steady(110 * 1.05**current.index)(current, step)

    sampler = Sampler(PLAN, [FLOOR])
    passes = run(sampler, server)
    (verdict,) = sampler.outcome

    assert len(passes) == 8
    assert (verdict.outcome, verdict.estimate, verdict.rounds) == ("INCONCLUSIVE", None, 0)
    assert (
        verdict.reason
        == sampler.reason
        == (
            "never became steady in 8 warm-up passes: the last one changed decode_tok_s by +5.0 %, "
            "one of its requests by +5.0 %; look for other load on the machine, or ask for longer answers "
            "(output_tokens), which scatter less"
        )
    )


# ---------------------------------------------------------------------- what is missing
def test_a_missing_figure_is_an_error_of_its_claim_alone() -> None:
    def server(current: Pass, step: Step) -> Figures:
        figures = steady(110)(current, step)
        gone = current.index == 2 and step[0] in (1, 3)
        return {**figures, "ttft_ms": None} if gone else figures

    sampler = Sampler(PLAN, [FLOOR, ceiling("max_ttft_ms", "ttft_ms", 400)])
    run(sampler, server)
    decode, ttft = sampler.outcome

    assert decode.outcome == "PASS"
    assert (ttft.outcome, ttft.estimate) == ("ERROR", None)
    assert ttft.reason == (
        "ttft_ms was not measured in round 2 (cell 1, cell 3): "
        "a missing figure is never judged, see the invalid requests"
    )
    assert sampler.summary("ttft_ms") is None


def test_a_missing_figure_of_an_ab_names_the_server() -> None:
    def server(current: Pass, step: Step) -> Figures:
        return {"output_tok_s": 90.0} | ({"decode_tok_s": 0.0} if step == (2, "A") else {"decode_tok_s": 9.0})

    sampler = Sampler(replace(PLAN, paired=True), [speedup("decode_tok_s", 1.2)])
    run(sampler, server)

    assert sampler.outcome[0].reason == (
        "decode_tok_s was not measured in round 1 (cell 2, server A): "
        "a missing figure is never judged, see the invalid requests"
    )


def test_a_time_budget_ends_what_is_undecided() -> None:
    sampler = Sampler(PLAN, [FLOOR, ceiling("max_ttft_ms", "ttft_ms", 400)])
    while sampler.rounds < 5:
        current = sampler.next_pass()
        assert current is not None
        sampler.add({step: steady(100)(current, step) for step in current.order})
    sampler.stop("budget_s=600 is spent")
    decode, ttft = sampler.outcome

    assert (decode.outcome, decode.rounds, decode.reason) == ("INCONCLUSIVE", 5, "budget_s=600 is spent")
    assert decode.estimate == pytest.approx(100)
    assert ttft.outcome == "PASS"
    assert sampler.next_pass() is None


def test_a_stop_before_the_rounds_leaves_no_figures() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    sampler.stop("budget_s=600 is spent")

    assert (sampler.outcome[0].outcome, sampler.outcome[0].estimate) == ("INCONCLUSIVE", None)


def test_a_stop_after_the_end_changes_nothing() -> None:
    sampler = Sampler(PLAN, [FLOOR])
    run(sampler, steady(110))
    sampler.stop("too late")

    assert (sampler.outcome[0].outcome, sampler.reason) == ("PASS", "")


# ---------------------------------------------------------------------- percentiles
def test_a_percentile_is_judged_on_all_requests_of_the_rounds() -> None:
    claim = ceiling("max_ttft_p90_ms", "ttft_ms", 250, quantile=0.9)
    sampler = Sampler(Plan((0, 1), requests_per_pass=16), [claim])
    while (current := sampler.next_pass()) is not None:
        values: dict[Step, Figures] = {step: {"decode_tok_s": 100.0} for step in current.order}
        sampler.add(values, requests={"ttft_ms": [200.0] * 16})

    assert (sampler.outcome[0].outcome, sampler.outcome[0].rounds) == ("PASS", 4)


def test_a_percentile_of_a_request_that_is_missing_is_an_error() -> None:
    claim = ceiling("max_ttft_p50_ms", "ttft_ms", 250, quantile=0.5)
    sampler = Sampler(PLAN, [claim])
    while (current := sampler.next_pass()) is not None:
        sampler.add(
            {step: {"decode_tok_s": 100.0} for step in current.order}, requests={"ttft_ms": [200.0, None]}
        )

    assert sampler.outcome[0].reason == (
        "ttft_ms was not measured in round 1 (1 of 2 requests): "
        "a missing figure is never judged, see the invalid requests"
    )


def test_a_percentile_that_the_budget_cannot_prove_is_refused_beforehand() -> None:
    with pytest.raises(ConfigError) as refused:
        Sampler(PLAN, [ceiling("max_ttft_p95_ms", "ttft_ms", 250, quantile=0.95)])

    assert str(refused.value) == (
        "max_ttft_p95_ms can never be proven with 48 requests: p95 of ttft_ms needs 122; "
        "raise requests, concurrency or max_rounds, or limit a lower percentile"
    )


# ---------------------------------------------------------------------- heat
def heating(rate: float, tau_s: float = 150) -> tuple[Server, Callable[[float], float]]:
    """Serve a machine that is 6 % fast and 35 C cold at first."""

    def server(current: Pass, step: Step) -> Figures:
        return steady(rate * math.exp(0.06 * math.exp(-PASS_S * (current.index + 1) / tau_s)))(current, step)

    return server, lambda at_s: 80 - 35 * math.exp(-at_s / tau_s)


def test_a_cold_machine_below_its_floor_is_soaked_and_fails() -> None:
    server, temperature = heating(97)
    sampler = Sampler(replace(PLAN, thermal=Thermal("plateau", 80.0)), [FLOOR])
    passes = run(sampler, server, temperature=temperature)
    (verdict,) = sampler.outcome

    assert verdict.outcome == "FAIL"
    assert len(passes) > 20
    assert sampler.round_passes[-1] == len(passes) - 1
    assert sampler.rounds == verdict.rounds < 12


def test_a_cold_machine_well_above_its_floor_need_not_wait() -> None:
    server, temperature = heating(112)
    sampler = Sampler(replace(PLAN, thermal=Thermal("plateau", 80.0)), [FLOOR])
    run(sampler, server, temperature=temperature)

    assert (sampler.outcome[0].outcome, sampler.rounds) == ("PASS", 3)


def test_the_window_restarts_for_five_minutes_at_most() -> None:
    server, _ = heating(100)
    sampler = Sampler(replace(PLAN, thermal=Thermal("plateau", 200.0)), [FLOOR])
    passes = run(sampler, server, temperature=lambda at_s: 40 + 0.1 * at_s)

    assert sampler.outcome[0].outcome == "INCONCLUSIVE"
    assert 30 < len(passes) < 50


def test_without_a_plateau_the_machine_soaks_before_round_one() -> None:
    server, temperature = heating(97, tau_s=80)
    sampler = Sampler(replace(PLAN, thermal=Thermal("soak")), [FLOOR])
    passes = run(sampler, server, temperature=temperature)
    kinds = [current.kind for current in passes]

    assert kinds[:2] == ["warm-up", "warm-up"]
    assert kinds.count("soak") > 15
    assert sampler.round_passes[0] == 2 + kinds.count("soak") - 1
    assert sampler.outcome[0].outcome == "FAIL"
    assert sampler.notes == ()


def test_a_soak_ends_after_five_minutes_and_says_that_it_was_not_enough() -> None:
    sampler = Sampler(replace(PLAN, thermal=Thermal("soak")), [FLOOR])
    passes = run(sampler, steady(110), temperature=lambda at_s: 40 + 0.1 * at_s)

    assert [current.kind for current in passes].count("soak") == 30
    assert sampler.outcome[0].reason == "the GPU was still warming after 300 s of soak"


@pytest.mark.parametrize(
    "claims", [[], [speedup("decode_tok_s", 0.9)], [floor("min_acceptance_rate", "acceptance_rate", 0.2)]]
)
def test_what_heat_does_not_change_needs_no_soak(claims: list[Claim]) -> None:
    sampler = Sampler(replace(PLAN, paired=True, thermal=Thermal("soak")), claims)

    def server(current: Pass, step: Step) -> Figures:
        return {**steady(100)(current, step), "acceptance_rate": 0.5}

    passes = run(sampler, server, temperature=lambda at_s: 40 + 0.1 * at_s)

    assert len(passes) == 4


def test_a_gpu_that_cannot_be_read_is_assumed_cold_and_that_is_said() -> None:
    sampler = Sampler(replace(PLAN, thermal=Thermal("assumed")), [FLOOR])
    passes = run(sampler, steady(104))

    assert len(passes) > 10
    assert sampler.outcome[0].outcome == "PASS"
    assert sampler.outcome[0].reason == ("the GPU temperature could not be read, so a cold start was assumed")


def test_a_baseline_brings_its_own_temperature() -> None:
    baseline = baseline_of("decode_tok_s", [100.0] * 10, [80.0] * 10)
    claim = margin("decode_tok_s", 0.05, paired=False)
    sampler = Sampler(replace(PLAN, thermal=Thermal("soak")), [claim], {"decode_tok_s": baseline})
    passes = run(sampler, steady(100), temperature=lambda _: 50.0)
    (verdict,) = sampler.outcome

    assert "soak" not in [current.kind for current in passes]
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason.endswith(
        "; the GPU is 30 C colder than its reference and may read fast: "
        "keep it under load for longer, then measure again"
    )


# ---------------------------------------------------------------------- terms
def test_a_comparison_needs_a_second_server() -> None:
    with pytest.raises(ConfigError) as refused:
        Sampler(PLAN, [speedup("decode_tok_s", 1.2)])

    assert str(refused.value) == "min_speedup compares two servers: name the other one with against=..."


def test_a_baseline_claim_needs_a_baseline() -> None:
    with pytest.raises(ConfigError) as refused:
        Sampler(PLAN, [margin("decode_tok_s", 0.05, paired=False)])

    assert str(refused.value) == (
        "max_slowdown needs a baseline of decode_tok_s on this hardware: record one with "
        "--sparkperf-record, or compare with a second server (against=...)"
    )


def test_a_budget_without_planned_looks_is_refused() -> None:
    with pytest.raises(ConfigError):
        Sampler(replace(PLAN, max_rounds=13), [FLOOR])


def test_measured_constants_narrow_the_interval() -> None:
    calibrated = Constants(round_sd=0.001, measured=True)
    sampler = Sampler(replace(PLAN, constants=calibrated), [FLOOR])
    run(sampler, steady(100.8))

    assert (sampler.outcome[0].outcome, sampler.outcome[0].rounds) == ("PASS", 3)
    assert calibrated.source == "measured"
