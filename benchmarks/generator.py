"""A made-up machine whose decode rates scatter, drift, stall and compile like those people publish.

Everything is in log units; a request is 256 tokens at 100 tok/s, so 2.56 s. Request noise follows a
heavy-tailed autoregression whose level differs between sessions; outliers slow single requests or three in a
row; a cold machine is fast and approaches its hot level; the first requests of a server may compile kernels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

REQUEST_S = 2.56
PROMPTS = 4
COLD_C = 35.0
_COMPILING = math.log(0.75)


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one machine is like; the defaults are a quiet one."""

    sigma: float = 0.013
    session_sd: float = 0.30
    autocorrelation: float = 0.1
    outliers: float = 0.0
    outlier_size: float = 0.15
    prompt_sd: float = 0.12
    interaction_sd: float = 0.005
    launch_sd: float = 0.004
    run_sd: float = 0.008
    drift: float = 0.0
    drift_s: float = 150.0
    compiles: bool = False


SCENARIOS = {
    "quiet": Scenario(),
    "drift": Scenario(drift=0.06),
    "autocorrelation 0.5": Scenario(autocorrelation=0.5),
    "outliers 5 %": Scenario(outliers=0.05),
    "cold start": Scenario(compiles=True),
    "noisy box": Scenario(sigma=0.03, run_sd=0.015, outliers=0.05, autocorrelation=0.3),
}


@dataclass(slots=True)
class Machine:
    """One session of one machine: noise, outliers and drift of consecutive requests, whoever they go to."""

    source: random.Random
    scenario: Scenario
    served: int = 0
    _sd: float = field(init=False)
    _last: float | None = field(init=False, default=None)
    _stalled: int = field(init=False, default=0)
    _offset_c: float = field(init=False)

    def __post_init__(self) -> None:
        self._sd = self.scenario.sigma * math.exp(self.scenario.session_sd * self.source.gauss(0, 1))
        self._offset_c = self.source.random()

    def request(self) -> float:
        """Serve a request and return what it reads above (or below) the truth."""
        scenario, rho = self.scenario, self.scenario.autocorrelation
        shock = self._shock()
        self._last = shock if self._last is None else rho * self._last + math.sqrt(1 - rho * rho) * shock
        value = self._sd * self._last - self._outlier()
        if scenario.drift:
            value += scenario.drift * math.exp(-self.seconds / scenario.drift_s)
        self.served += 1
        return value

    @property
    def seconds(self) -> float:
        """Seconds under load so far."""
        return self.served * REQUEST_S

    @property
    def temperature_c(self) -> float:
        """GPU temperature above the hot level at the last request, in whole degrees as thermometers read."""
        below = 0.0
        if self.scenario.drift:
            below = COLD_C * math.exp(-(self.seconds - REQUEST_S) / self.scenario.drift_s)
        return float(round(-below + self.source.gauss(0, 0.3) + self._offset_c))

    def _shock(self) -> float:
        """Draw from Student's t with 8 degrees of freedom, scaled to variance 1."""
        draw = self.source.random
        chi_squared = -2 * math.log((1 - draw()) * (1 - draw()) * (1 - draw()) * (1 - draw()))
        return self.source.gauss(0, 1) / math.sqrt(chi_squared / 8) * math.sqrt(6 / 8)

    def _outlier(self) -> float:
        share = self.scenario.outliers
        if not share:
            return 0.0
        if self.source.random() < share / 6:
            self._stalled = 3
        hit = self._stalled > 0 or self.source.random() < share / 2
        self._stalled = max(0, self._stalled - 1)
        return self.source.expovariate(1 / self.scenario.outlier_size) if hit else 0.0


@dataclass(slots=True)
class Server:
    """One server on a machine: its truth per prompt, and the kernels it compiles at first."""

    machine: Machine
    levels: Sequence[float]
    served: int = 0

    def rate(self, prompt: int) -> float:
        """Send one request of a prompt and return its log decode rate."""
        value = self.levels[prompt] + self.machine.request()
        if self.machine.scenario.compiles and self.served < 8:
            chance = 1.0 if self.served < 2 else 0.7 ** (self.served - 1)
            value += _COMPILING if self.machine.source.random() < chance else 0.0
        self.served += 1
        return value


def prompt_levels(source: random.Random, sd: float) -> list[float]:
    """Draw how the prompts differ; their mean is 0."""
    raw = [source.gauss(0, sd) for _ in range(PROMPTS)]
    mean = math.fsum(raw) / PROMPTS
    return [value - mean for value in raw]
