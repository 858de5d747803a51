"""What heat may do to a verdict, and when a machine has soaked long enough.

A heating machine reads fast, so it can only make a false PASS; a machine hotter than its reference can only
make a false FAIL. Each is met by an allowance on the one bound concerned. Where no reference temperature is
known the machine is soaked first, and the allowance is nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.core.constants import Constants

Mode = Literal["none", "plateau", "soak", "assumed"]

UNREADABLE = "the GPU temperature could not be read, so a cold start was assumed"
STILL_WARMING = "the GPU was still warming after {seconds:.0f} s of soak"


@dataclass(frozen=True, slots=True)
class Thermal:
    """How heat is dealt with.

    ``none``: simulator and CPU. ``plateau``: the hot temperature of this workload is known (``plateau_c``).
    ``soak``: there is a thermometer but no plateau. ``assumed``: a GPU that cannot be read.
    """

    mode: Mode = "none"
    plateau_c: float | None = None

    def __post_init__(self) -> None:
        if (self.mode == "plateau") is not (self.plateau_c is not None):
            raise ValueError(f"plateau_c goes with mode 'plateau' and no other, got {self!r}")


NO_HEAT = Thermal()


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the interval allows for heat, on the log scale: ``cold`` under it, ``hot`` over it.

    ``gap_c`` is how far the machine is below its reference (above it: negative).
    """

    cold: float = 0.0
    hot: float = 0.0
    gap_c: float = 0.0

    @property
    def open(self) -> bool:
        """Is anything allowed for?"""
        return bool(self.cold or self.hot)


NO_ALLOWANCE = Allowance()


def allowance(temperature_c: float | None, reference_c: float | None, constants: Constants) -> Allowance:
    """Return the allowance for a machine at one temperature against a reference at another.

    Beyond ``free_degrees`` each degree costs its published change and a safety factor. That alone would allow
    for less than the published change up to three times ``free_degrees``, so from half of them on each degree
    costs at least that: thermometers read whole degrees, and no more than that is free.
    """
    if temperature_c is None or reference_c is None:
        return NO_ALLOWANCE
    gap, free = reference_c - temperature_c, constants.free_degrees
    degrees = max(0.0, (abs(gap) - free) * constants.heat_safety, abs(gap) - free / 2)
    change = degrees * constants.per_degree
    return Allowance(change, 0.0, gap) if gap > 0 else Allowance(0.0, change, gap)


def assumed_temperature_c(load_s: float, constants: Constants) -> float:
    """Stand in for a missing thermometer, in degrees below hot: the session began stone cold."""
    return -constants.cold_start_c * math.exp(-load_s / constants.cold_start_s)


class HeatWatch:
    """The temperatures of one measurement, one reading per pass.

    A reading that is missing turns a thermometer's mode into ``assumed`` for good: half a record of
    temperatures proves nothing.
    """

    def __init__(self, thermal: Thermal, constants: Constants) -> None:
        self.mode: Mode = thermal.mode
        self._plateau_c = thermal.plateau_c
        self._constants = constants
        self._readings: list[tuple[float, float | None]] = []

    def read(self, temperature_c: float | None, at_s: float) -> None:
        """Take the reading at the end of a pass, ``at_s`` seconds after the load began."""
        self._readings.append((at_s, temperature_c))
        if temperature_c is None and self.mode in ("plateau", "soak"):
            self.mode = "assumed"

    @property
    def unreadable(self) -> bool:
        """Does the assumed cold start stand in for a thermometer?"""
        return self.mode == "assumed"

    def settled(self) -> bool:
        """Has the GPU risen by no more than ``max_rise_c`` over the last ``rise_over_s`` seconds?"""
        now_s = self._readings[-1][0]
        earlier = [index for index, (at_s, _) in enumerate(self._readings) if at_s <= self._oldest_s(now_s)]
        return bool(earlier) and self.rise_c(earlier[-1]) <= self._constants.max_rise_c

    def rise_c(self, since: int) -> float:
        """Degrees gained since the reading with that index; 0 where heat is of no concern."""
        then, now = self._temperature_c(since), self._temperature_c(-1)
        return 0.0 if then is None or now is None else now - then

    def allowance(self, baseline_c: float | None) -> Allowance:
        """Return what to allow for now; a baseline's own temperature is the reference where it has one."""
        if self.mode == "assumed":
            return allowance(self._temperature_c(-1), 0.0, self._constants)
        reference = self._plateau_c if baseline_c is None else baseline_c
        return allowance(self._temperature_c(-1), reference, self._constants)

    def _temperature_c(self, index: int) -> float | None:
        at_s, temperature_c = self._readings[index]
        if self.mode == "none":
            return None
        return assumed_temperature_c(at_s, self._constants) if self.mode == "assumed" else temperature_c

    def _oldest_s(self, now_s: float) -> float:
        return now_s - self._constants.rise_over_s
