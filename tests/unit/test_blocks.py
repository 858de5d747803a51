from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest

from pytest_sparkperf.core.blocks import (
    BLOCKS,
    BY_RESTART,
    Block,
    block_plan,
    judge_blocks,
    pair_rounds,
    ratio_of_blocks,
    rounds_per_block,
)
from pytest_sparkperf.core.claim import ceiling, floor, margin, speedup
from pytest_sparkperf.core.constants import Constants
from pytest_sparkperf.core.heat import Mode, Thermal
from pytest_sparkperf.core.order import SUBJECT, Arm
from pytest_sparkperf.core.sampling import PassKind, Plan, Sampler
from pytest_sparkperf.core.taken import Taken

PLAN = Plan((0, 1, 2, 3), paired=True)
MARGIN = margin("decode_tok_s", 0.03, paired=True)
A, B = 100.0, 110.0
Rate = Callable[[int, int], float | None]


def block(arm: Arm, rate: Rate, rounds: int = 6, reason: str = "") -> Block:
    return Block(
        arm,
        tuple(
            Taken(
                number + 1,
                {(cell, SUBJECT): {"decode_tok_s": rate(number, cell)} for cell in range(4)},
                {"ttft_ms": [float(10 * number + cell) + 1 for cell in range(4)]},
            )
            for number in range(rounds)
        ),
        reason,
    )


def blocks(**rates: Rate) -> list[Block]:
    """Build four blocks; a rate by arm, or by the place of the block (``A1``, ``B1``, ``B2``, ``A2``)."""
    names = ("A1", "B1", "B2", "A2")
    return [
        block(arm, rates[name] if name in rates else rates[arm])
        for name, arm in zip(names, BLOCKS, strict=True)
    ]


def steady(rate: float) -> Rate:
    return lambda _round, _cell: rate


def rising(start: float) -> Rate:
    return lambda number, _cell: start + number


def drive(plan: Plan, temperature: Callable[[float], float | None]) -> tuple[list[PassKind], Sampler]:
    """Sample a steady server, a pass every 10 s; return the kinds of the passes."""
    sampler = Sampler(plan)
    kinds: list[PassKind] = []
    while (step := sampler.next_pass()) is not None:
        kinds.append(step.kind)
        at_s = 10.0 * len(kinds)
        figures: Mapping[str, float | None] = {"decode_tok_s": 100.0}
        sampler.add(dict.fromkeys(step.order, figures), temperature_c=temperature(at_s), at_s=at_s)
    return kinds, sampler


@pytest.mark.parametrize(("max_rounds", "expected"), [(3, 3), (5, 3), (6, 3), (7, 4), (8, 4), (12, 6)])
def test_a_block_has_half_of_the_budget_and_at_least_three_rounds(max_rounds: int, expected: int) -> None:
    assert rounds_per_block(max_rounds) == expected


@pytest.mark.parametrize("max_rounds", [3, 7, 8, 12])
def test_every_block_measures_exactly_its_rounds(max_rounds: int) -> None:
    plan = block_plan(Plan((0, 1, 2, 3), paired=True, max_rounds=max_rounds))

    _, sampler = drive(plan, lambda _: None)

    assert sampler.rounds == rounds_per_block(max_rounds)


@pytest.mark.parametrize("thermal", [Thermal("soak"), Thermal("plateau", 70.0)])
def test_every_block_waits_until_its_temperature_has_settled(thermal: Thermal) -> None:
    plan = block_plan(Plan((0, 1, 2, 3), paired=True, thermal=thermal))

    kinds, sampler = drive(plan, lambda at_s: 70.0 - 30 * math.exp(-at_s / 40))

    # 30 exp(-t / 40) (exp(60 / 40) - 1) falls to 1 degree at 186 s, in the 19th pass; two are warm-up.
    assert kinds.count("soak") == 17
    assert sampler.notes == ()


def test_without_a_thermometer_every_block_is_loaded_for_as_long_as_a_soak_may_last() -> None:
    plan = block_plan(Plan((0, 1, 2, 3), paired=True, thermal=Thermal("assumed")))

    kinds, _ = drive(plan, lambda _: None)

    assert kinds.count("soak") == 30


@pytest.mark.parametrize("mode", ["none", "assumed"])
def test_where_nothing_can_be_read_the_way_heat_is_dealt_with_stays(mode: Mode) -> None:
    assert block_plan(Plan((0,) * 4, thermal=Thermal(mode))).thermal == Thermal(mode)


def test_round_r_of_a_b_block_meets_round_r_of_the_a_block_beside_it() -> None:
    found = pair_rounds(
        blocks(
            A1=rising(100.0),
            B1=rising(200.0),
            B2=rising(300.0),
            A2=rising(400.0),
        )
    )

    pairs = [(taken.values[0, "A"]["decode_tok_s"], taken.values[0, "B"]["decode_tok_s"]) for taken in found]
    assert pairs == [
        *((100.0 + number, 200.0 + number) for number in range(6)),
        *((400.0 + number, 300.0 + number) for number in range(6)),
    ]


def test_a_drift_from_block_to_block_cancels() -> None:
    slower = {"A1": 1.0, "B1": 0.98, "B2": 0.96, "A2": 0.94}
    found = ratio_of_blocks(
        blocks(**{name: steady(100 * share) for name, share in slower.items()}), "decode_tok_s", PLAN
    )

    assert found is not None
    assert math.exp(found.theta) == pytest.approx(math.sqrt(0.98 / 1.0 * 0.96 / 0.94))
    assert found.theta == pytest.approx(0.0, abs=5e-4)


@pytest.mark.parametrize(("b", "outcome"), [(100.0, "PASS"), (95.0, "FAIL"), (98.0, "INCONCLUSIVE")])
def test_a_comparison_is_judged_once_and_says_that_it_was_by_restart(b: float, outcome: str) -> None:
    (verdict,) = judge_blocks(blocks(A=steady(100.0), B=steady(b)), [MARGIN], PLAN)

    assert (verdict.outcome, verdict.rounds, verdict.constants) == (outcome, 12, "assumed")
    assert verdict.reason.endswith(BY_RESTART)


def test_two_starts_of_each_make_the_launch_term_smaller() -> None:
    (verdict,) = judge_blocks(blocks(A=steady(100.0), B=steady(100.0)), [MARGIN], PLAN)
    assert verdict.low is not None

    within = 2.6245 * math.sqrt(3 * 0.01**2 / 14) / math.sqrt(12)  # t(0.01, 14): one look
    launch = 2.3263 * 0.006 * math.sqrt(2 / 2)
    assert verdict.low == pytest.approx(math.exp(-math.hypot(within, launch)), rel=1e-6)


def test_starts_that_scatter_more_than_assumed_widen_the_interval() -> None:
    calm = judge_blocks(blocks(A=steady(100.0), B=steady(100.0)), [MARGIN], PLAN)[0]
    jumpy = judge_blocks(blocks(A=steady(100.0), B1=steady(96.0), B2=steady(104.0)), [MARGIN], PLAN)[0]

    assert (calm.outcome, jumpy.outcome) == ("PASS", "INCONCLUSIVE")
    assert jumpy.reason.count("outliers") == 0


def test_limits_of_one_server_are_judged_on_both_of_its_blocks() -> None:
    claims = [
        floor("min_decode", "decode_tok_s", 105.0),
        speedup("decode_tok_s", 1.05),
        ceiling("max_ttft_p50_ms", "ttft_ms", 60.0, quantile=0.5),
    ]

    verdicts = judge_blocks(blocks(A=steady(A), B=steady(B)), claims, PLAN)

    assert [verdict.outcome for verdict in verdicts] == ["PASS", "PASS", "PASS"]
    assert verdicts[0].estimate == pytest.approx(B)
    assert verdicts[1].estimate == pytest.approx(B / A)
    assert verdicts[0].reason == ""


def test_measured_constants_are_said_to_be_measured() -> None:
    plan = Plan((0, 1, 2, 3), paired=True, constants=Constants(measured=True))

    (verdict,) = judge_blocks(blocks(A=steady(A), B=steady(B)), [MARGIN], plan)

    assert verdict.constants == "measured"


def test_a_missing_figure_is_an_error() -> None:
    def gone(number: int, cell: int) -> float | None:
        return None if (number, cell) == (2, 1) else 100.0

    (verdict,) = judge_blocks(blocks(A=steady(100.0), B=steady(100.0), B2=gone), [MARGIN], PLAN)

    assert verdict.outcome == "ERROR"
    assert verdict.reason == (
        "decode_tok_s was not measured in round 9 (cell 1, server B): "
        "a missing figure is never judged, see the invalid requests"
    )


def test_a_block_that_never_became_steady_leaves_everything_open() -> None:
    found = blocks(A=steady(100.0), B=steady(100.0))
    found[1] = Block("B", (), "never became steady in 8 warm-up passes")

    (verdict,) = judge_blocks(found, [MARGIN], PLAN)

    assert (verdict.outcome, verdict.estimate) == ("INCONCLUSIVE", None)
    assert verdict.reason == "block 2 of A B B A was not measured: never became steady in 8 warm-up passes"
    assert ratio_of_blocks(found, "decode_tok_s", PLAN) is None


@pytest.mark.parametrize("shape", ["order", "length"])
def test_only_a_b_b_a_of_one_length_can_be_paired(shape: str) -> None:
    found = blocks(A=steady(1.0), B=steady(1.0))
    found = [found[1], *found[1:]] if shape == "order" else [block("A", steady(1.0), rounds=5), *found[1:]]
    seen = "[('B', 6), ('B', 6)" if shape == "order" else "[('A', 5), ('B', 6)"

    with pytest.raises(ValueError) as caught:
        pair_rounds(found)

    assert str(caught.value) == (
        f"needs the blocks A B B A with equally many rounds, got {seen}, ('B', 6), ('A', 6)]"
    )


def test_noise_that_both_blocks_share_by_round_cancels() -> None:
    source = random.Random(1)
    shared = [source.gauss(0, 0.03) for _ in range(6)]

    def common(number: int, _cell: int) -> float:
        return 100 * math.exp(shared[number])

    found = ratio_of_blocks(blocks(A=common, B=common), "decode_tok_s", PLAN)

    assert found is not None
    assert found.theta == pytest.approx(0.0)
