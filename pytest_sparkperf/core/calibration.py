"""What several starts of one unchanged server say about a machine: the constants that verdicts rest on.

The same server is started again and again and measured alike each time (A/A over restarts). How far the
starts lie apart is the launch spread, the one number that an A/B cannot see by itself. What is known from
five starts is known coarsely, so the interval of each spread is kept beside it, and no spread is believed
that is smaller than a floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from pytest_sparkperf.core.chi_squared import sd_interval
from pytest_sparkperf.core.constants import ASSUMED, Constants, Spread
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.heat import Mode, Thermal
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.summary import Rounds, request_sd, summarize

DECODE, FIRST = "decode_tok_s", "ttft_ms"
MIN_LAUNCHES = 5
MAX_LAUNCHES = 20
# Five starts may agree by chance: no launch spread under this is believed.
MIN_LAUNCH_SD = 0.004
# A calm hour says little about a busy one: rounds are expected to scatter by half as much again, and by no
# less than this.
ROUND_SAFETY = 1.5
MIN_ROUND_SD = 0.004


@dataclass(frozen=True, slots=True)
class MetricSpread:
    """What one metric scatters by on the log scale, as measured, without floors.

    ``launch_sd`` between starts, with its 95 % interval; ``round_sd`` of a round's mean within a start;
    ``request_sd`` of single requests.
    """

    launch_sd: float
    launch_low: float
    launch_high: float
    round_sd: float
    request_sd: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of one machine.

    ``server`` says what was started, ``workload`` is the digest of the load. ``plateaus_c``: by workload, the
    temperature at which the GPU settles under it. ``recorded_at`` is in UTC.
    """

    recorded_at: str
    server: str
    workload: str
    launches: int
    rounds: int
    spreads: Mapping[str, MetricSpread]
    plateaus_c: Mapping[str, float] = field(default_factory=dict)

    def constants(self, base: Constants = ASSUMED) -> Constants:
        """Return the constants of verdicts on this machine; what was not measured stays as it is."""
        decode, first = self.spreads[DECODE], self.spreads.get(FIRST)
        return replace(
            base,
            round_sd=_believed_round_sd(decode),
            launch_sd=max(MIN_LAUNCH_SD, decode.launch_sd),
            first_token=base.first_token
            if first is None
            else Spread(
                round_sd=_believed_round_sd(first),
                run_sd=base.first_token.run_sd,
                launch_sd=max(MIN_LAUNCH_SD, first.launch_sd),
            ),
            measured=True,
        )

    def thermal(self, workload: str, mode: Mode) -> Thermal:
        """Return how heat is dealt with: by the plateau of this workload where a thermometer can be read."""
        plateau_c = self.plateaus_c.get(workload)
        return Thermal("plateau", plateau_c) if mode == "soak" and plateau_c is not None else Thermal(mode)


@dataclass(frozen=True, slots=True)
class Start:
    """What one start showed: per metric ``rounds[r][c]``, the log speed of cell c in round r.

    ``temperature_c`` is that of the settled GPU; None where it was not read or did not settle.
    """

    speeds: Mapping[str, Rounds]
    temperature_c: float | None = None


def spread_of(starts: Sequence[Rounds], prompts: Sequence[int]) -> MetricSpread:
    """Return the spreads of one metric; raises ConfigError for fewer starts than say anything."""
    _check_launches(len(starts))
    # Without a prior: what is wanted here is what the machine itself shows.
    summaries = [summarize(rounds, prompts, replace(ASSUMED, round_df=0)) for rounds in starts]
    launch_sd = stdev([summary.theta for summary in summaries])
    low, high = sd_interval(launch_sd, len(starts) - 1)
    within = math.sqrt(fmean(summary.sd**2 for summary in summaries))
    requests = math.sqrt(fmean(request_sd(rounds) ** 2 for rounds in starts))
    return MetricSpread(launch_sd, low, high, within, requests)


def calibrate(
    starts: Sequence[Start], prompts: Sequence[int], *, recorded_at: str, server: str, workload: str
) -> Calibration:
    """Return the figures of a machine from starts that were measured alike.

    Metrics that some start lacks are left out; raises ConfigError without decode rates or for too few starts.
    """
    _check_launches(len(starts))
    spreads = {
        metric: spread_of([start.speeds[metric] for start in starts], prompts)
        for metric in METRICS
        if all(metric in start.speeds for start in starts)
    }
    if DECODE not in spreads:
        raise ConfigError(
            f"{DECODE} was not measured in every start, so nothing can be calibrated: use a load of at least "
            "2 output tokens on a server that streams"
        )
    temperatures = [start.temperature_c for start in starts if start.temperature_c is not None]
    plateaus = {workload: fmean(temperatures)} if len(temperatures) == len(starts) else {}
    rounds = len(starts[0].speeds[DECODE])
    return Calibration(recorded_at, server, workload, len(starts), rounds, spreads, plateaus)


def with_plateaus_of(new: Calibration, before: Calibration | None) -> Calibration:
    """Return a calibration that keeps the plateaus of other workloads that an earlier one found."""
    if before is None:
        return new
    return replace(new, plateaus_c={**before.plateaus_c, **new.plateaus_c})


def calibration_lines(found: Calibration) -> list[str]:
    """Say what was measured, and what verdicts will use of it."""
    lines = [
        f"{found.launches} starts of {found.server}, {found.rounds} rounds each:",
        *(_spread_line(metric, spread) for metric, spread in found.spreads.items()),
    ]
    plateau_c = found.plateaus_c.get(found.workload)
    lines.append(
        "the temperature was not read, or did not settle: no plateau"
        if plateau_c is None
        else f"the GPU settles at {plateau_c:.0f} C under this load"
    )
    used = found.constants()
    lines.append(
        f"verdicts will use launch_sd {_percent(used.launch_sd)} and {_percent(used.round_sd)} for a round "
        f"(times to the first token: {_percent(used.first_token.launch_sd)} and "
        f"{_percent(used.first_token.round_sd)})"
    )
    return lines


def _spread_line(metric: str, spread: MetricSpread) -> str:
    return (
        f"  {metric}: between starts {_percent(spread.launch_sd)} (95 % interval "
        f"{_percent(spread.launch_low)} to {_percent(spread.launch_high)}), between rounds "
        f"{_percent(spread.round_sd)}, between requests {_percent(spread.request_sd)}"
    )


def _percent(sd: float) -> str:
    return f"{100 * sd:.2g} %" if sd < 0.1 else f"{100 * sd:.0f} %"


def _believed_round_sd(spread: MetricSpread) -> float:
    return max(MIN_ROUND_SD, ROUND_SAFETY * spread.round_sd)


def _check_launches(launches: int) -> None:
    if launches < MIN_LAUNCHES:
        raise ConfigError(
            f"{launches} starts say too little about how far starts lie apart: calibrate with at least "
            f"{MIN_LAUNCHES}"
        )
