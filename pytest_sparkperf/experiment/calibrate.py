"""A/A over restarts: one variant is started again and again, and every start is measured alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.calibration import MAX_LAUNCHES, MIN_LAUNCHES, Calibration, Start, calibrate
from pytest_sparkperf.core.constants import LOOKS
from pytest_sparkperf.core.design import plan_of
from pytest_sparkperf.core.errors import ConfigError, MeasurementError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.heat import NO_HEAT, Thermal
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.sampling import Plan, Sampler
from pytest_sparkperf.core.summary import Rounds
from pytest_sparkperf.core.taken import Taken
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.core.workload import workload_digest
from pytest_sparkperf.experiment.passes import PassRunner, Thermometer, sample
from pytest_sparkperf.experiment.side import Side


@dataclass(frozen=True, slots=True)
class Job:
    """What is calibrated: so many starts of a variant, so many rounds of a load on each."""

    variant: Variant
    launches: int = MIN_LAUNCHES
    rounds: int = 6
    load: Load = field(default_factory=Load)

    def __post_init__(self) -> None:
        if not MIN_LAUNCHES <= self.launches <= MAX_LAUNCHES:
            raise ConfigError(
                f"{self.launches} starts cannot be calibrated on: use {MIN_LAUNCHES} to {MAX_LAUNCHES}; "
                "fewer say too little about how far starts lie apart"
            )
        if not LOOKS[0] <= self.rounds <= LOOKS[-1]:
            raise ConfigError(
                f"{self.rounds} rounds cannot be calibrated on: use {LOOKS[0]} to {LOOKS[-1]} of each start"
            )
        if self.variant.launch == "attach":
            raise ConfigError(
                f"target {self.variant.target!r} is attached, and a calibration starts its server "
                f"{self.launches} times: use a target that is started, such as launch: vllm"
            )


@dataclass(frozen=True, slots=True)
class Outside:
    """How a server is started, the time in UTC, the temperature, whom to tell of each start."""

    start: Callable[[Variant], Server]
    now: Callable[[], str]
    thermometer: Thermometer = lambda: None
    say: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic


def run_calibration(job: Job, outside: Outside) -> tuple[Calibration, Server]:
    """Start, measure and stop as often as asked; return the figures and the last server, which is stopped.

    Raises ServerError for one that cannot be started, MeasurementError for one that cannot be measured.
    """
    starts: list[Start] = []
    for number in range(1, job.launches + 1):
        outside.say(f"start {number} of {job.launches}: {job.variant.describe()}")
        server = outside.start(job.variant)
        try:
            starts.append(asyncio.run(_measure(job, server, outside)))
        finally:
            server.stop()
    prompts = shipped_prompts(job.load.concurrency)
    found = calibrate(
        starts,
        _plan(job, NO_HEAT).prompts,
        recorded_at=outside.now(),
        server=job.variant.describe(),
        workload=workload_digest(job.load, prompts),
    )
    return found, server


async def _measure(job: Job, server: Server, outside: Outside) -> Start:
    readable = outside.thermometer() is not None
    sampler = Sampler(_plan(job, Thermal("soak") if readable else NO_HEAT))
    prompts = shipped_prompts(job.load.concurrency)
    async with open_async_client(server.url, api_key=server.api_key) as client:
        side = Side(job.variant, server, client, job.load, prompts)
        rounds = await sample(sampler, PassRunner({SUBJECT: side}), outside.thermometer, outside.clock)
    if sampler.reason:
        raise MeasurementError(f"{job.variant.describe()} cannot be calibrated on: {sampler.reason}")
    settled = readable and not sampler.notes
    return Start(
        {metric: speeds for metric in METRICS if (speeds := _speeds(rounds, metric)) is not None},
        outside.thermometer() if settled else None,
    )


def _plan(job: Job, thermal: Thermal) -> Plan:
    plan = plan_of(GateSpec(load=job.load, max_rounds=job.rounds), thermal=thermal)
    return replace(plan, min_rounds=job.rounds, settle=True)


def _speeds(rounds: tuple[Taken, ...], metric: str) -> Rounds | None:
    found = [taken.speeds(metric, SUBJECT) for taken in rounds]
    known = [row for row in found if row is not None]
    return known if len(known) == len(found) else None
