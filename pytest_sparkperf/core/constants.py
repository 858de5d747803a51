"""The figures a verdict rests on besides its samples: error rates, priors, spreads and heat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

# The rounds after which a gate may decide; the last is the largest budget.
LOOKS = (3, 4, 6, 8, 12)


# Metrics that are the time to the first token in one form or another.
FIRST_TOKEN = frozenset({"ttft_ms", "prefill_tok_s"})


@dataclass(frozen=True, slots=True)
class Spread:
    """What a metric scatters by on the log scale: the means of rounds, of runs, of starts of one server."""

    round_sd: float
    run_sd: float
    launch_sd: float


@dataclass(frozen=True, slots=True)
class Constants:
    """Assumed until a calibration has measured them on the machine (``measured``).

    Standard deviations and allowances are on the log scale: 0.01 is 1 %. ``round_sd`` with ``round_df`` and
    ``run_sd`` with ``run_df`` are priors: what a round's mean and a run's mean are expected to scatter by,
    and how many degrees of freedom that expectation is worth. ``launch_sd`` is the spread between two starts
    of the same server. These are about decoding; times to the first token have spreads of their own
    (``first_token``), and :meth:`of` gives the constants of one metric. Docs: docs/statistics.md.
    """

    alpha: float = 0.01  # one-sided error of a verdict, over all its looks together
    clamp_sigmas: float = 3.0
    sigma_min: float = 0.005
    round_sd: float = 0.010
    round_df: int = 3
    run_sd: float = 0.010
    run_df: int = 4
    launch_sd: float = 0.006
    allow: float = 0.01  # a slowdown up to 1 % is never called a regression
    per_degree: float = 0.06 / 35  # 6 % between cold and hot over about 35 C
    heat_safety: float = 1.5  # that much more is allowed for beyond the free degrees
    free_degrees: float = 2.0
    cold_start_c: float = 35.0  # no thermometer: a cold start this far below hot
    cold_start_s: float = 200.0  # and approaching it with this time constant
    max_rise_c: float = 1.0
    rise_over_s: float = 60.0
    max_soak_s: float = 300.0
    # Five starts on one H200: 12 % between requests, so 6 % between means of four; 6.4 % between starts.
    first_token: Spread = Spread(round_sd=0.06, run_sd=0.065, launch_sd=0.065)
    measured: bool = False

    def of(self, metric: str) -> Constants:
        """Return the constants for one metric: a time to the first token scatters far more than decoding."""
        if metric not in FIRST_TOKEN:
            return self
        own = self.first_token
        return replace(self, round_sd=own.round_sd, run_sd=own.run_sd, launch_sd=own.launch_sd)

    @property
    def source(self) -> Literal["measured", "assumed"]:
        """The word a report prints: were these figures measured on this machine?"""
        return "measured" if self.measured else "assumed"


ASSUMED = Constants()
