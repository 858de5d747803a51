"""A/B by restart, where two servers do not fit beside each other: blocks A B B A, judged when all are in.

Theory of operation. Each block is one start of one server: warm-up, a soak where heat matters, then a fixed
number of rounds. Round r of a B block is compared with round r of the A block beside it, so that both stand
at the same point of their block; the order A B B A cancels what drifts from block to block in a line. Every
test on the pair of servers is measured in each block, so that four starts serve them all.

Nothing is decided before the last block, so there is one look, and alpha is not shared. Each arm has been
started twice, which makes the launch term smaller by the root of two than for two resident servers. That the
two pairs differ by their starts goes into the spread of the rounds as well, so that starts which scatter more
than the constants say at least widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_sparkperf.core import reasons
from pytest_sparkperf.core.claim import Claim
from pytest_sparkperf.core.constants import LOOKS, Constants
from pytest_sparkperf.core.heat import NO_ALLOWANCE, Thermal
from pytest_sparkperf.core.judge import Look, Terms, decide, to_verdict, without_figures
from pytest_sparkperf.core.order import SUBJECT, Arm, Step
from pytest_sparkperf.core.quantile import decide_quantile
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.sampling import Plan
from pytest_sparkperf.core.summary import Rounds, Summary, summarize
from pytest_sparkperf.core.taken import Figures, Taken

BLOCKS: tuple[Arm, ...] = ("A", "B", "B", "A")
# Each A block and the B block beside it.
_PAIRS = ((0, 1), (3, 2))
LAUNCHES = 2

IN_TURN = "A and B were up together and served every prompt in turn"
BY_RESTART = "A and B were compared by restart, in blocks A B B A with two starts of each"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one test: the rounds that its server was measured in, figures under the arm ``SUBJECT``.

    ``reason``: why it has fewer rounds than planned; then nothing is judged.
    """

    arm: Arm
    rounds: tuple[Taken, ...]
    reason: str = ""


def rounds_per_block(max_rounds: int) -> int:
    """Return how many rounds a block has: half of the budget, and no fewer than the first look needs."""
    return max(LOOKS[0], -(-max_rounds // 2))


def block_plan(plan: Plan) -> Plan:
    """Return how one block of a test is sampled: without claims, settled first, then exactly its rounds.

    A known plateau is no use here: a block that is allowed for differs from one that has settled.
    """
    rounds = rounds_per_block(plan.max_rounds)
    thermal = Thermal("soak") if plan.thermal.mode == "plateau" else plan.thermal
    return replace(plan, paired=False, max_rounds=rounds, min_rounds=rounds, settle=True, thermal=thermal)


def pair_rounds(blocks: Sequence[Block]) -> list[Taken]:
    """Return the rounds as an A/B has them; raises ValueError for other blocks than A B B A of one length."""
    if tuple(block.arm for block in blocks) != BLOCKS or len({len(block.rounds) for block in blocks}) != 1:
        shape = [(block.arm, len(block.rounds)) for block in blocks]
        raise ValueError(f"needs the blocks {' '.join(BLOCKS)} with equally many rounds, got {shape}")
    paired: list[Taken] = []
    for a, b in _PAIRS:
        for before, after in zip(blocks[a].rounds, blocks[b].rounds, strict=True):
            values: dict[Step, Figures] = {}
            for (cell, _), figures in before.values.items():
                values[cell, "A"] = figures
            for (cell, _), figures in after.values.items():
                values[cell, "B"] = figures
            paired.append(Taken(len(paired), values, after.requests))
    return paired


def judge_blocks(blocks: Sequence[Block], claims: Sequence[Claim], plan: Plan) -> tuple[Verdict, ...]:
    """Judge the claims of one test once all blocks are in, in their order.

    ``plan`` is that of the whole test. Comparisons pair the blocks; limits of one server are judged on both
    of its blocks, each settled before it was measured, so nothing is allowed for heat.
    """
    for number, block in enumerate(blocks, start=1):
        if block.reason:
            reason = f"block {number} of {' '.join(BLOCKS)} was not measured: {block.reason}"
            return tuple(without_figures(claim, "INCONCLUSIVE", reason) for claim in claims)
    rounds = pair_rounds(blocks)
    return tuple(_judge(claim, rounds, plan) for claim in claims)


def ratio_of_blocks(blocks: Sequence[Block], metric: str, plan: Plan) -> Summary | None:
    """Summarize the log ratio B/A of a metric; None where a block or a figure is missing."""
    if any(block.reason for block in blocks):
        return None
    return _summary(pair_rounds(blocks), metric, None, plan)


def _judge(claim: Claim, rounds: Sequence[Taken], plan: Plan) -> Verdict:
    for number, taken in enumerate(rounds, start=1):
        if missing := taken.missing(claim):
            reason = reasons.not_measured(claim.metric, number, missing)
            return without_figures(claim, "ERROR", reason, len(rounds))
    look = _look(claim, rounds, plan)
    reason = reasons.joined(look.reason, BY_RESTART if claim.kind == "paired" else "")
    return replace(to_verdict(claim, look, reason), constants=plan.constants.source)


def _look(claim: Claim, rounds: Sequence[Taken], plan: Plan) -> Look:
    terms = Terms(plan.constants.of(claim.metric), (len(rounds),), plan.gates, launches=LAUNCHES)
    if claim.quantile is not None:
        values = [value for taken in rounds for value in taken.each_request(claim.metric)]
        figures = [value for value in values if value is not None]
        return decide_quantile(figures, claim, len(rounds), terms, NO_ALLOWANCE)
    summary = _summary(rounds, claim.metric, None if claim.kind == "paired" else SUBJECT, plan)
    assert summary is not None  # a round that lacks a figure has ended the claim
    return decide(summary, claim, terms)


def _summary(rounds: Sequence[Taken], metric: str, arm: Arm | None, plan: Plan) -> Summary | None:
    series = [taken.speeds(metric, arm) for taken in rounds]
    complete = [row for row in series if row is not None]
    if len(complete) < len(series):
        return None
    half = len(complete) // 2
    return _joined(complete[:half], complete[half:], plan.prompts, plan.constants.of(metric))


def _joined(first: Rounds, second: Rounds, prompts: Sequence[int], constants: Constants) -> Summary:
    """Summarize two pairs of blocks: outliers are told within each, what lies between them is spread.

    Together they would be pulled towards one median, and a difference between starts would vanish.
    """
    own = replace(constants, round_df=0)
    one, other = summarize(first, prompts, own), summarize(second, prompts, own)
    n = one.rounds + other.rounds
    squares = (one.rounds - 1) * one.sd**2 + (other.rounds - 1) * other.sd**2
    squares += n * ((one.theta - other.theta) / 2) ** 2
    prior = constants.round_df * constants.round_sd**2
    return Summary(
        theta=(one.theta + other.theta) / 2,
        sd=math.sqrt((prior + squares) / (constants.round_df + n - 1)),
        rounds=n,
        requests=one.requests + other.requests,
        clamped_requests=one.clamped_requests + other.clamped_requests,
        drift=(one.drift + other.drift) / 2,
    )
