"""Why a gate could not decide, in words, each with what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_sparkperf.core.claim import Claim, Kind
from pytest_sparkperf.core.constants import LOOKS

DECIDES_EVERYWHERE = "can be judged at every value"

BASELINE_SPREAD = (
    "the spread between runs is the limit, more requests would not help: "
    "record more baseline runs, or compare with a second server (against=...)"
)
PAIRED_SPREAD = (
    "the spread between starts of a server is the limit, more requests would not help: "
    "measure it on this machine (sparkperf calibrate), or allow a wider margin"
)
_SPREAD: dict[Kind, str] = {"baseline": BASELINE_SPREAD, "paired": PAIRED_SPREAD}

_QUIETER = {
    "absolute": "move the limit, give it a tolerance, or measure on a quieter machine",
    "baseline": "record more baseline runs, allow a wider margin, or measure on a quieter machine",
    "paired": "move the limit, or measure on a quieter machine",
}


@dataclass(frozen=True, slots=True)
class PassChange:
    """How a warm-up pass differs from the one before (shares): in the mean, and where it moved most."""

    mean: float
    largest: float


def figure(value: float | None) -> str:
    """Format a figure with four digits."""
    return "unknown" if value is None else f"{value:.4g}"


def only_outside(claim: Claim, low: float, high: float) -> str:
    """Say which true values a limit cannot decide."""
    return f"can only be judged outside {figure(low)} to {_with_unit(claim, high)}"


def budget_spent(claim: Claim, low: float | None, high: float | None, rounds: int) -> str:
    """Say that the last look did not decide, and what would."""
    more = f"raise max_rounds (up to {LOOKS[-1]}), " if rounds < LOOKS[-1] else ""
    return (
        f"{rounds} rounds leave {figure(low)} to {_with_unit(claim, high)}, which does not settle the limit "
        f"of {figure(claim.limit)}: {more}{_QUIETER[claim.kind]}"
    )


def spread_is_the_limit(kind: Kind) -> str:
    """Say that more requests would not narrow the interval."""
    return _SPREAD[kind]


def temperature_gap(gap_c: float) -> str:
    """Say that the machine is colder or hotter than its reference."""
    if gap_c > 0:
        return (
            f"the GPU is {gap_c:.0f} C colder than its reference and may read fast: "
            "keep it under load for longer, then measure again"
        )
    return (
        f"the GPU is {-gap_c:.0f} C hotter than its reference and may read slow: "
        "let it cool, or record a baseline at this temperature"
    )


def many_clamped(clamped: int, requests: int) -> str:
    """Say how many requests were pulled back to their prompt's median."""
    return (
        f"{clamped} of {requests} requests were outliers and pulled back: look for other load on the machine"
    )


def drifted(drift: float) -> str:
    """Say that the speed moved over the window."""
    return f"the speed changed by {100 * drift:+.1f} % over the window"


def never_steady(passes: int, metric: str, seen: PassChange | None, *, compiling: bool, missing: int) -> str:
    """Say why warm-up gave up."""
    if compiling:
        cause = "kernels were still compiling in the last one; send these shapes to the server first"
    elif missing or seen is None:
        cause = f"{metric} was not measured in {missing} of them; see the invalid requests"
    else:
        cause = (
            f"the last one changed {metric} by {100 * seen.mean:+.1f} %, one of its requests by "
            f"{100 * seen.largest:+.1f} %; look for other load on the machine, or ask for longer answers "
            "(output_tokens), which scatter less"
        )
    return f"never became steady in {passes} warm-up passes: {cause}"


def not_measured(metric: str, round_number: int, places: Sequence[str]) -> str:
    """Say that a figure is missing, so that nothing may be judged."""
    return (
        f"{metric} was not measured in round {round_number} ({', '.join(places)}): "
        "a missing figure is never judged, see the invalid requests"
    )


def no_acceptance(why: str) -> str:
    """Say that a limit on acceptance cannot be judged, and what it takes."""
    return f"{why}; a limit on acceptance needs a server with draft tokens (k) that counts them at /metrics"


def too_few_requests(needed: int, seen: int, label: str) -> str:
    """Say how many requests a percentile needs."""
    return f"{label} needs {needed} requests to be proven, {seen} were measured: raise requests or max_rounds"


def percentile_open(claim: Claim, label: str, low: float | None, high: float | None, seen: int) -> str:
    """Say that a percentile's interval holds the limit."""
    return (
        f"{seen} requests leave {label} at {figure(low)} to {_with_unit(claim, high)}, which does not settle "
        f"the limit of {figure(claim.limit)}: raise requests or max_rounds, or move the limit"
    )


def joined(*sentences: str) -> str:
    """Join what is to be said."""
    return "; ".join(sentence for sentence in sentences if sentence)


def _with_unit(claim: Claim, value: float | None) -> str:
    return f"{figure(value)} {claim.unit}".rstrip()
