"""One measurement: warm-up and rounds on one server, as the sampler asks, and the verdicts on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.burst import burst_figures, common_rule
from pytest_sparkperf.core.claim import Claim, ceiling, floor
from pytest_sparkperf.core.collect import Measured, collect
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.heat import Thermal
from pytest_sparkperf.core.judge import without_figures
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.order import SUBJECT, Step, cells_for
from pytest_sparkperf.core.proportion import judge_error_rate
from pytest_sparkperf.core.result import RequestResult, Result, TpotRule, Verdict
from pytest_sparkperf.core.sampling import Pass, Plan, Sampler
from pytest_sparkperf.core.validity import SENTENCES
from pytest_sparkperf.experiment.arm import Arm

# Bursts in a round: as many as make a round of 4 requests, or two where each is many requests itself.
_FEW_BURSTS_FROM = 8
# A server that was just started is not warm before it has served this many requests of a shape.
_WARM_REQUESTS = 8


def cells_of(load: Load, prompts: int) -> tuple[int, ...]:
    """Return the prompt of each cell of a round; above a concurrency of 1 a cell is a burst of them all."""
    if load.concurrency == 1:
        return cells_for(prompts)
    return (0,) * (2 if load.concurrency >= _FEW_BURSTS_FROM else 4)


def claims_of(spec: GateSpec) -> list[Claim]:
    """Return what the limits of a gate claim; the error rate is counted, not sampled."""
    return [
        (floor if limit.is_floor else ceiling)(limit.gate, limit.metric, limit.bound, spec.tolerance)
        for limit in spec.limits
        if limit.metric != "error_rate"
    ]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement depends on besides its gate: the server's name, the other gates, the heat."""

    name: str
    gates: int
    thermal: Thermal


class Measurement:
    """Drives one sampler: sends what it asks for until it has heard enough."""

    def __init__(self, arm: Arm, spec: GateSpec, cells: tuple[int, ...], conditions: Conditions) -> None:
        per_pass = len(cells) * spec.load.concurrency
        plan = Plan(
            prompts=cells,
            max_rounds=spec.max_rounds,
            min_passes=max(2, -(-_WARM_REQUESTS // per_pass)),
            requests_per_pass=per_pass,
            steady_metric="decode_tok_s" if spec.load.concurrency == 1 else "output_tok_s",
            gates=conditions.gates,
            thermal=conditions.thermal,
        )
        self._arm = arm
        self._spec = spec
        self._name = conditions.name
        self._claims = claims_of(spec)
        self._sampler = Sampler(plan, self._claims)
        self._rule: TpotRule | None = None
        self._failure: str | None = None

    async def run(self) -> Result:
        """Measure until every limit is decided or the budget is spent."""
        begun_s = time.monotonic()
        try:
            while (step := self._sampler.next_pass()) is not None:
                values = await self._measure(step)
                at_s = time.monotonic() - begun_s
                self._sampler.add(values, at_s=at_s, still_compiling=self._arm.records[-1].compiling)
                if at_s > self._spec.budget_s:
                    self._sampler.stop(
                        f"the budget of {self._spec.budget_s:g} s was spent: raise budget_s, or measure less"
                    )
        except MeasurementError as error:
            self._failure = str(error)
        return self._result()

    async def _measure(self, step: Pass) -> Mapping[Step, Mapping[str, float | None]]:
        """Send a pass; one that the server's counters contradict is sent once more."""
        for last_try in (False, True):
            await self._send(step)
            fault = self._arm.fault()
            if fault is None:
                break
            if last_try:
                raise MeasurementError(fault)
        bursts = self._arm.records[-1].bursts
        if self._rule is None:
            self._rule = common_rule([request for burst in bursts.values() for request in burst.requests])
        return {(cell, SUBJECT): burst_figures(bursts[cell].requests, self._rule) for cell, _ in step.order}

    async def _send(self, step: Pass) -> None:
        await self._arm.begin(step.index)
        for cell, _ in step.order:
            burst = await self._arm.shoot(cell)
            if burst.fault is not None:
                raise MeasurementError(_twice(burst.fault, self._arm.log_tail()))
        await self._arm.end()

    # ------------------------------------------------------------------ the result
    def _result(self) -> Result:
        rounds = () if self._failure else self._sampler.round_passes
        kept = [record for record in self._arm.records if record.index in set(rounds)]
        sent = (*self._arm.superseded, *self._arm.records)
        everything = [burst for record in sent for burst in record.bursts.values()]
        attempts = [request for burst in everything for request in burst.attempts]
        faults = sum(burst.server_faults for burst in everything)
        measured = Measured(
            cells=[
                burst_figures(burst.requests, self._rule or "n_minus_1")
                for record in kept
                for burst in record.bursts.values()
            ],
            requests=[
                request for record in kept for burst in record.bursts.values() for request in burst.requests
            ],
            spoiled=_invalid([(*burst.spoiled, *burst.requests) for burst in everything]),
            attempts=len(attempts),
            faults=faults,
            rounds=len(rounds),
            rule=self._rule,
            acceptance=self._arm.acceptance(rounds),
        )
        return collect(measured, self._verdicts(faults, len(attempts)), self._facts())

    def _verdicts(self, faults: int, attempts: int) -> list[Verdict]:
        if self._failure is None:
            verdicts = list(self._sampler.outcome)
        else:
            verdicts = [without_figures(claim, "ERROR", self._failure) for claim in self._claims]
            if not verdicts:
                verdicts = [Verdict("measurement", "ERROR", None, None, None, None, None, self._failure)]
        asked = any(limit.metric == "error_rate" for limit in self._spec.limits)
        if asked or faults:
            verdicts.append(judge_error_rate(faults, attempts, self._spec.max_error_rate))
        return verdicts

    def _facts(self) -> Mapping[str, Any]:
        server = self._arm.server
        return {**server.facts, "name": self._name, "simulated": server.simulated}


def _invalid(attempts: Sequence[Sequence[RequestResult]]) -> list[RequestResult]:
    return [request for burst in attempts for request in burst if not request.valid]


def _twice(request: RequestResult, log_tail: str) -> str:
    """Say why a cell could not be measured, in the server's words and ours."""
    reason = request.reason or "not valid"
    text = f"a request failed twice ({reason}): {SENTENCES.get(reason, '')}"
    if request.error:
        text += f" Seen: {request.error}"
    return f"{text}\nlast lines of the server's log:\n{log_tail}" if log_tail else text
