"""One look at a window of rounds: is what cannot be accepted ruled out, or a healthy server?

PASS: the whole interval lies above the line. FAIL: it does not, and it lies below the mark. Otherwise the
gate measures on. Two widths go into the interval in quadrature: ``within``, the requests' noise, which is
looked at several times and pays for every look (alpha divided by their number), and ``between``, what one
start or one run says about others, which more requests do not narrow. FAIL also pays for the other gates of
the session (alpha / gates). Docs: docs/statistics.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from pytest_sparkperf.core import reasons
from pytest_sparkperf.core.claim import Claim, Kind
from pytest_sparkperf.core.constants import ASSUMED, LOOKS, Constants
from pytest_sparkperf.core.heat import NO_ALLOWANCE, Allowance
from pytest_sparkperf.core.result import Outcome, Verdict
from pytest_sparkperf.core.student import t_quantile, z_quantile
from pytest_sparkperf.core.summary import Baseline, Summary

# z of 90 %: the detectable effect is stated for that probability.
_POWER_Z = 1.2816
# Beyond this share of pulled-back requests, or this change over a window, a verdict says so.
_CLAMPED_NOTED = 0.10
_DRIFT_NOTED = 0.02


@dataclass(frozen=True, slots=True)
class Terms:
    """What an interval depends on besides the samples.

    ``gates``: limits of the session, for Bonferroni on FAIL. ``baseline`` belongs to baseline claims.
    ``launches``: starts per arm of an A/B, 1 for two resident servers, 2 for the blocks A B B A.
    """

    constants: Constants = ASSUMED
    looks: tuple[int, ...] = LOOKS
    gates: int = 1
    baseline: Baseline | None = None
    launches: int = 1


DEFAULT_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found, in the claim's unit, ``low`` below ``high``; None where there is no such bound."""

    outcome: Literal["PASS", "FAIL", "MORE", "INCONCLUSIVE"]
    estimate: float
    low: float | None
    high: float | None
    mde: float | None
    rounds: int
    reason: str = ""


def between_se(kind: Kind, terms: Terms) -> float:
    """Return the standard error that more requests do not narrow: of starts, of runs, or none."""
    if kind == "paired":
        return terms.constants.launch_sd * math.sqrt(2 / terms.launches)
    return _baseline(terms).se(terms.constants) if kind == "baseline" else 0.0


def half_widths(kind: Kind, sd: float, rounds: int, terms: Terms, alpha: float) -> tuple[float, float]:
    """Return (within, between) on the log scale; ``sd`` is that of a round's mean."""
    constants = terms.constants
    df = constants.round_df + rounds - 1
    within = t_quantile(alpha / len(terms.looks), df) * sd / math.sqrt(rounds)
    between = between_se(kind, terms)
    if kind == "baseline":
        between *= t_quantile(alpha, _baseline(terms).df(constants))
    elif kind == "paired":
        between *= z_quantile(alpha)
    return within, between


def decide(
    summary: Summary, claim: Claim, terms: Terms = DEFAULT_TERMS, heat: Allowance = NO_ALLOWANCE
) -> Look:
    """Look once at a summary of log speeds (of log ratios B/A for a paired claim)."""
    alpha = terms.constants.alpha
    heat = heat if claim.heats and claim.kind != "paired" else NO_ALLOWANCE
    centre = summary.theta - (_baseline(terms).mean if claim.kind == "baseline" else 0.0)
    within, between = half_widths(claim.kind, summary.sd, summary.rounds, terms, alpha)
    total = math.hypot(within, between)
    down = total + heat.cold
    up = (
        math.hypot(*half_widths(claim.kind, summary.sd, summary.rounds, terms, alpha / terms.gates))
        + heat.hot
    )
    low, high = claim.interval(centre - down, centre + up)
    exhausted = between > 0 and within < total / 3 and not heat.open
    outcome: Literal["PASS", "FAIL", "MORE", "INCONCLUSIVE"] = "MORE"
    if centre - down > claim.log_line:
        outcome = "PASS"
    elif centre + up < claim.log_mark:
        outcome = "FAIL"
    elif exhausted or summary.rounds >= terms.looks[-1]:
        outcome = "INCONCLUSIVE"
    noise = math.hypot(summary.se, between_se(claim.kind, terms))
    mde = claim.from_log(claim.log_mark - up - _POWER_Z * noise)
    look = Look(outcome, claim.from_log(centre), low, high, mde, summary.rounds)
    return _explained(look, claim, summary, terms, heat, exhausted=exhausted)


def interval(claim: Claim, summary: Summary, terms: Terms = DEFAULT_TERMS) -> tuple[float, float]:
    """Return the interval at one look, without allowances: for figures that nothing is claimed of."""
    centre = summary.theta - (_baseline(terms).mean if claim.kind == "baseline" else 0.0)
    width = math.hypot(*half_widths(claim.kind, summary.sd, summary.rounds, terms, terms.constants.alpha))
    return claim.interval(centre - width, centre + width)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The true values, in the claim's unit, that a full budget would leave undecided too often.

    Below ``low`` and above ``high`` it decides with 90 % probability; both are None where it does so at
    every value.
    """

    low: float | None
    high: float | None
    text: str


def forecast(claim: Claim, terms: Terms = DEFAULT_TERMS, sd: float | None = None) -> Forecast:
    """Say before a run what a limit can decide; ``sd``: of a round's mean as last seen, else the prior's."""
    constants = terms.constants
    sd = constants.round_sd if sd is None else sd
    rounds = terms.looks[-1]
    noise = _POWER_Z * math.hypot(sd / math.sqrt(rounds), between_se(claim.kind, terms))
    down = math.hypot(*half_widths(claim.kind, sd, rounds, terms, constants.alpha)) + noise
    up = math.hypot(*half_widths(claim.kind, sd, rounds, terms, constants.alpha / terms.gates)) + noise
    slow, fast = claim.log_mark - up, claim.log_line + down
    if slow >= fast:
        return Forecast(None, None, reasons.DECIDES_EVERYWHERE)
    low, high = claim.interval(slow, fast)
    return Forecast(low, high, reasons.only_outside(claim, low, high))


def smallest_margin(baseline: Baseline, constants: Constants = ASSUMED) -> float:
    """Return the smallest ``max_slowdown`` that passes an unchanged server in 95 % of the runs.

    From the run-to-run spread alone: t s_b + 1.64 sd, with the spread of the stored runs for both.
    """
    spread = baseline.sd(constants)
    width = (t_quantile(constants.alpha, baseline.df(constants)) + z_quantile(0.05)) * spread
    return 1 - math.exp(-width * math.sqrt(1 + 1 / len(baseline.thetas)))


def to_verdict(claim: Claim, look: Look, reason: str | None = None) -> Verdict:
    """Turn the last look into the verdict of its claim; one that would measure on is INCONCLUSIVE."""
    found: Outcome = "INCONCLUSIVE" if look.outcome == "MORE" else look.outcome
    return Verdict(
        gate=claim.gate,
        outcome=found,
        estimate=look.estimate,
        low=look.low,
        high=look.high,
        limit=claim.limit,
        mde=look.mde,
        reason=look.reason if reason is None else reason,
        rounds=look.rounds,
    )


def without_figures(claim: Claim, outcome: Outcome, reason: str, rounds: int = 0) -> Verdict:
    """Return a verdict for which nothing was measured."""
    return Verdict(claim.gate, outcome, None, None, None, claim.limit, None, reason, rounds)


def judge_fact(gate: str, value: float | None, limit: float, *, higher_is_better: bool) -> Verdict:
    """Judge a figure that is read once and has no noise (memory, KV tokens): compared as it is."""
    if value is None:
        reason = "this figure could not be read from the server: a missing figure is never judged"
        return Verdict(gate, "ERROR", None, None, None, limit, None, reason)
    met = value >= limit if higher_is_better else value <= limit
    return Verdict(gate, "PASS" if met else "FAIL", value, value, value, limit, limit)


def _explained(
    look: Look, claim: Claim, summary: Summary, terms: Terms, heat: Allowance, *, exhausted: bool
) -> Look:
    """Add the reason for INCONCLUSIVE, and what a reader of any verdict must know."""
    why = ""
    if look.outcome == "INCONCLUSIVE":
        spent = summary.rounds >= terms.looks[-1] and not exhausted
        why = (
            reasons.budget_spent(claim, look.low, look.high, look.rounds)
            if spent
            else reasons.spread_is_the_limit(claim.kind)
        )
    gap = (
        reasons.temperature_gap(heat.gap_c) if heat.open and look.outcome in ("MORE", "INCONCLUSIVE") else ""
    )
    outliers = summary.clamped > _CLAMPED_NOTED
    clamped = reasons.many_clamped(summary.clamped_requests, summary.requests) if outliers else ""
    drifting = claim.kind != "paired" and abs(summary.drift) > _DRIFT_NOTED
    drift = reasons.drifted(summary.drift) if drifting else ""
    return replace(look, reason=reasons.joined(why, gap, clamped, drift))


def _baseline(terms: Terms) -> Baseline:
    if terms.baseline is None:
        raise ValueError("a baseline claim needs terms with a baseline")
    return terms.baseline
