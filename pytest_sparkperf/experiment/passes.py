"""Sends whole passes over one server or two in turn, and turns what comes back into figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pytest_sparkperf.core.acceptance import acceptance_figures
from pytest_sparkperf.core.burst import common_rule
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.lumps import LUMPY, what_remains
from pytest_sparkperf.core.order import SUBJECT, Arm, Step
from pytest_sparkperf.core.reasons import no_acceptance
from pytest_sparkperf.core.result import RequestResult, TpotRule
from pytest_sparkperf.core.sampling import Pass, Sampler
from pytest_sparkperf.core.taken import Figures, Taken
from pytest_sparkperf.core.validity import SENTENCES, TIMEOUT
from pytest_sparkperf.experiment.shots import Burst
from pytest_sparkperf.experiment.side import Side

# Reads the temperature of the GPU; None where there is nothing to read.
Thermometer = Callable[[], float | None]


class Watch(Protocol):
    """Who looks at the machine while a pass is sent."""

    def begin(self) -> None:
        """Begin a pass."""

    def fault(self) -> str | None:
        """Say what was wrong with the machine since the pass began; None where nothing shows."""

    def notes(self) -> Sequence[str]:
        """Say what the machine was like."""


class Unwatched:
    """Nobody looks: the machine is simulated, or elsewhere."""

    def begin(self) -> None:
        """Begin a pass."""

    def fault(self) -> str | None:
        """Know of nothing."""
        return None

    def notes(self) -> Sequence[str]:
        """Have nothing to say."""
        return ()


class PassRunner:
    """Sends the passes of one measurement; ``rule`` is the TPOT rule that the first pass settled for all.

    ``accepted``: acceptance is judged, so that a server under test without one cannot be measured.
    """

    def __init__(
        self,
        sides: Mapping[Arm, Side],
        rule: TpotRule | None = None,
        *,
        accepted: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.rule = rule
        self._sides = sides
        self._accepted = accepted
        self._watch = watch or Unwatched()

    async def send(self, step: Pass) -> Mapping[Step, Figures]:
        """Send a pass; one that a server's counters or its machine contradict is sent once more.

        Raises MeasurementError for a request that failed twice, for what contradicts a pass again, and for a
        missing acceptance that is judged.
        """
        for last_try in (False, True):
            self._watch.begin()
            await self._send(step)
            faults = (*(side.fault() for side in self._sides.values()), self._watch.fault())
            fault = next(filter(None, faults), None)
            if fault is None:
                break
            if last_try:
                raise MeasurementError(fault)
            for side in self._sides.values():
                side.repeats.append(fault)
        reason = self._sides[SUBJECT].why_no_acceptance() if self._accepted else None
        if reason is not None:
            raise MeasurementError(no_acceptance(reason))
        records = {arm: side.records[-1] for arm, side in self._sides.items()}
        if self.rule is None:
            bursts = [burst for record in records.values() for burst in record.bursts.values()]
            self.rule = common_rule([request for burst in bursts for request in burst.requests])
        rule = self.rule
        drafted = {
            arm: acceptance_figures(side.acceptance((step.index,))) for arm, side in self._sides.items()
        }
        return {(cell, arm): {**records[arm].figures(cell, rule), **drafted[arm]} for cell, arm in step.order}

    def each_request(self) -> Mapping[str, list[float | None]]:
        """Return the figures of every request of the last pass on the server under test, for percentiles."""
        bursts = self._sides[SUBJECT].records[-1].bursts.values()
        requests = [request for burst in bursts for request in burst.requests]
        return {
            "ttft_ms": [request.ttft_ms for request in requests],
            "tpot_ms": [request.tpot_ms_by(self.rule or request.tpot_rule) for request in requests],
            "e2el_ms": [request.e2el_ms for request in requests],
        }

    @property
    def compiling(self) -> bool:
        """Were kernels compiled during the last pass, on any server?"""
        return any(side.records[-1].compiling for side in self._sides.values())

    async def _send(self, step: Pass) -> None:
        for side in self._sides.values():
            await side.begin(step.index)
        for cell, arm in step.order:
            burst = await self._sides[arm].shoot(cell)
            if burst.fault is not None:
                raise MeasurementError(await _twice(burst, burst.fault, self._sides[arm]))
        for side in self._sides.values():
            await side.end()


async def sample(
    sampler: Sampler,
    runner: PassRunner,
    thermometer: Thermometer,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Taken, ...]:
    """Send what a sampler asks for until it has heard enough; return the passes that became rounds.

    Raises MeasurementError where a pass cannot be measured.
    """
    begun_s = clock()
    taken: dict[int, Taken] = {}
    while (step := sampler.next_pass()) is not None:
        values = await runner.send(step)
        requests = runner.each_request()
        taken[step.index] = Taken(step.index, values, requests)
        sampler.add(
            values,
            requests=requests,
            temperature_c=thermometer(),
            at_s=clock() - begun_s,
            still_compiling=runner.compiling,
        )
    return tuple(taken[index] for index in sampler.round_passes)


async def _twice(burst: Burst, request: RequestResult, side: Side) -> str:
    """Say why a cell could not be measured, in the server's words and ours."""
    reason = request.reason or "not valid"
    text = f"a request failed twice ({reason}): {SENTENCES.get(reason, '')}"
    if request.error:
        text += f" Seen: {request.error}"
    if reason == TIMEOUT:
        text += f"; {await side.pulse()}"
    if reason in LUMPY:
        await side.end()
        remains = what_remains(burst.requests, side.records[-1].before, side.records[-1].after)
        text += f"; {remains}" if remains else ""
    log_tail = side.log_tail()
    return f"{text}\nlast lines of the server's log:\n{log_tail}" if log_tail else text
