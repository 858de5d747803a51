"""What makes a step take longer or shorter than its cost: noise, outliers, heat, the luck of this start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

# A step's time is never scaled beyond this many standard deviations of the noise.
_NOISE_CUT = 4.0
_OUTLIER_FACTOR = 8.0


@dataclass(frozen=True, slots=True)
class ConditionSettings:
    """How far steps stray: ``noise`` is their relative sd, ``outliers`` the share that takes 8 times as long.

    ``heat`` is how much slower a hot machine is; it gets there, and cools down when idle, with the time
    constant ``heat_s``. ``launch_factor`` scales all steps of this start.
    """

    noise: float = 0.0
    outliers: float = 0.0
    heat: float = 0.0
    heat_s: float = 300.0
    launch_factor: float = 1.0
    seed: int = 0


STEADY = ConditionSettings()


class Conditions:
    """Scales one step after the other; draws follow from the seed alone."""

    def __init__(self, settings: ConditionSettings) -> None:
        self._settings = settings
        self._noise = Random(settings.seed)
        self._outliers = Random(settings.seed + 1)
        self._warmth = 0.0  # 0 cold, 1 as hot as it gets
        self._last_end_s: float | None = None

    def scaled_s(self, cost_s: float, start_s: float) -> float:
        """Return what the step takes that begins at ``start_s``; steps are asked for in order."""
        settings = self._settings
        if self._last_end_s is not None:
            self._warmth *= math.exp(-max(0.0, start_s - self._last_end_s) / settings.heat_s)
        drawn = self._noise.gauss(0.0, 1.0)
        factor = 1 + settings.noise * max(-_NOISE_CUT, min(_NOISE_CUT, drawn))
        factor *= settings.launch_factor * (1 + settings.heat * self._warmth)
        if settings.outliers and self._outliers.random() < settings.outliers:
            factor *= _OUTLIER_FACTOR
        taken_s = cost_s * factor
        self._warmth = 1 - (1 - self._warmth) * math.exp(-taken_s / settings.heat_s)
        self._last_end_s = start_s + taken_s
        return taken_s


def launch_factor(sd: float, seed: int | None) -> float:
    """Return the factor of one start, log-normal with ``sd``; without a seed each start has its own."""
    return math.exp(Random(seed).gauss(0.0, sd)) if sd else 1.0
