"""The figures a verdict rests on besides its samples: error rates, priors, spreads and heat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The rounds after which a gate may decide; the last is the largest budget.
LOOKS = (3, 4, 6, 8, 12)


@dataclass(frozen=True, slots=True)
class Constants:
    """Assumed until a calibration has measured them on the machine (``measured``).

    Standard deviations and allowances are on the log scale: 0.01 is 1 %. ``round_sd`` with ``round_df`` and
    ``run_sd`` with ``run_df`` are priors: what a round's mean and a run's mean are expected to scatter by,
    and how many degrees of freedom that expectation is worth. ``launch_sd`` is the spread between two starts
    of the same server. Docs: docs/statistics.md.
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
    per_degree: float = 0.09 / 35  # 6 % between cold and hot over about 35 C, times 1.5 for safety
    free_degrees: float = 2.0
    cold_start_c: float = 35.0  # no thermometer: a cold start this far below hot
    cold_start_s: float = 200.0  # and approaching it with this time constant
    max_rise_c: float = 1.0
    rise_over_s: float = 60.0
    max_soak_s: float = 300.0
    measured: bool = False

    @property
    def source(self) -> Literal["measured", "assumed"]:
        """The word a report prints: were these figures measured on this machine?"""
        return "measured" if self.measured else "assumed"


ASSUMED = Constants()
