"""The verdicts on a run of many requests, and what is said of it: coverage, sending, queue."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_sparkperf.core import reasons
from pytest_sparkperf.core.claim import Claim
from pytest_sparkperf.core.heat import Allowance
from pytest_sparkperf.core.judge import Look, Terms, decide, to_verdict, without_figures
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.quantile import decide_quantile
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.sampling import Plan
from pytest_sparkperf.core.summary import summarize
from pytest_sparkperf.core.taken import Taken

# A client that sends later than this at the median offers another load than it says.
LATE_MS = 20.0
# More requests than this share were not valid: what was measured is not the load that was asked for.
MOST_INVALID = 0.05


def judge_run(rounds: Sequence[Taken], claims: Sequence[Claim], plan: Plan, heat: Allowance) -> list[Verdict]:
    """Judge the claims of a run by its segments, at one look: nothing is decided before it has ended."""
    return [_judge(claim, rounds, plan, heat) for claim in claims]


def _judge(claim: Claim, rounds: Sequence[Taken], plan: Plan, heat: Allowance) -> Verdict:
    for number, taken in enumerate(rounds, start=1):
        if missing := taken.missing(claim):
            reason = reasons.not_measured(claim.metric, number, missing)
            return without_figures(claim, "ERROR", reason, len(rounds))
    return to_verdict(claim, _look(claim, rounds, plan, heat))


def _look(claim: Claim, rounds: Sequence[Taken], plan: Plan, heat: Allowance) -> Look:
    terms = Terms(plan.constants.of(claim.metric), (len(rounds),), plan.gates)
    if claim.quantile is not None:
        values = [value for taken in rounds for value in taken.each_request(claim.metric)]
        figures = [value for value in values if value is not None]
        return decide_quantile(figures, claim, len(rounds), terms, heat)
    speeds = [row for taken in rounds if (row := taken.speeds(claim.metric, SUBJECT)) is not None]
    return decide(summarize(speeds, (0,), terms.constants), claim, terms, heat)


def coverage(load: Load, sent: int, segments: int, per_segment: int, seconds: float) -> str:
    """Say how much of a run was measured, and how it is cut up."""
    asked = load.requests or 0
    text = f"{sent} of {asked} requests sent in {seconds:.1f} s"
    if sent < asked:
        text += ", cut when budget_s was spent"
    if segments:
        text += f"; {segments * per_segment} between ramp and drain, in {segments} segments of {per_segment}"
    return text


def too_short(load: Load, sent: int) -> str:
    """Say that a run has no segments to judge."""
    return (
        f"{sent} of {load.requests} requests leave too little between ramp and drain for a verdict: raise "
        "budget_s, or ask for shorter answers"
    )


def sending(lags_ms: Sequence[float], most_in_flight: int) -> str:
    """Say how closely requests were sent on their schedule, and how many were under way at most."""
    return (
        f"sent within {percentile(lags_ms, 50):.1f} ms of their schedule (p50), "
        f"{percentile(lags_ms, 99):.1f} ms (p99); up to {most_in_flight} under way"
    )


def held_back(held: int, sent: int, load: Load) -> str | None:
    """Say that an open loop without a cap met one, this client's; None where it did not.

    What waits in the client is in none of the server's times, so an overloaded server would look well.
    """
    if not held:
        return None
    return (
        f"{held} of {sent} requests waited for one of the {load.concurrency} streams that one client holds: "
        f"the server falls behind {load.request_rate:g} requests a second; lower request_rate, or make a cap "
        f"part of the load (concurrency={load.concurrency})"
    )


def late(lags_ms: Sequence[float]) -> str | None:
    """Say that the client could not keep its schedule; None where it did."""
    median_ms = percentile(lags_ms, 50)
    if median_ms <= LATE_MS:
        return None
    return (
        f"requests were sent {median_ms:.0f} ms after they were due (p50), so the load was not what was "
        "asked for: this client is saturated; lower request_rate, or keep other load off its machine"
    )


def queue_note(concurrency: int, max_num_seqs: int) -> str:
    """Say what more requests than a server runs at once measure."""
    return (
        f"queueing: {concurrency} requests at once are more than the {max_num_seqs} that the server runs "
        "(max-num-seqs), so TTFT, E2EL and requests per second measure its queue"
    )


def percentile(values: Sequence[float], q: float) -> float:
    """Return the ``q``-th percentile (0 to 100) by the nearest rank; raises ValueError for no values."""
    if not values:
        raise ValueError("a percentile needs values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q / 100 * len(ordered)))]
