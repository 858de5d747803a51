"""One measurement: warm-up and rounds on one server or two in turn, as the sampler asks, and the verdicts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_sparkperf.core.burst import burst_figures, common_rule
from pytest_sparkperf.core.collect import Measured, collect
from pytest_sparkperf.core.compare import explain
from pytest_sparkperf.core.design import claims_of, main_metric, plan_of
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.heat import Thermal
from pytest_sparkperf.core.judge import without_figures
from pytest_sparkperf.core.order import SUBJECT, Arm, Step
from pytest_sparkperf.core.proportion import judge_error_rate
from pytest_sparkperf.core.result import Outcome, RequestResult, Result, TpotRule, Verdict
from pytest_sparkperf.core.sampling import Pass, Sampler
from pytest_sparkperf.core.validity import SENTENCES
from pytest_sparkperf.experiment.side import Side

REFERENCE: Arm = "A"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement depends on besides its gate: how many limits the session has, the heat to expect."""

    gates: int
    thermal: Thermal


class Measurement:
    """Drives one sampler: sends what it asks for until it has heard enough.

    ``sides`` holds the server under test as B and, for an A/B, the one it is compared with as A.
    """

    def __init__(self, sides: Mapping[Arm, Side], spec: GateSpec, conditions: Conditions) -> None:
        self._sides = sides
        self._spec = spec
        self._claims = claims_of(spec)
        plan = plan_of(spec, gates=conditions.gates, thermal=conditions.thermal)
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
                self._sampler.add(
                    values,
                    requests=self._each_request(),
                    at_s=at_s,
                    still_compiling=any(side.records[-1].compiling for side in self._sides.values()),
                )
                if at_s > self._spec.budget_s:
                    self._sampler.stop(
                        f"the budget of {self._spec.budget_s:g} s was spent: raise budget_s, or measure less"
                    )
        except MeasurementError as error:
            self._failure = str(error)
        return self._result()

    async def _measure(self, step: Pass) -> Mapping[Step, Mapping[str, float | None]]:
        """Send a pass; one that a server's counters contradict is sent once more."""
        for last_try in (False, True):
            await self._send(step)
            fault = next(filter(None, (side.fault() for side in self._sides.values())), None)
            if fault is None:
                break
            if last_try:
                raise MeasurementError(fault)
        bursts = {place: self._sides[place[1]].records[-1].bursts[place[0]] for place in step.order}
        if self._rule is None:
            self._rule = common_rule([request for burst in bursts.values() for request in burst.requests])
        return {place: burst_figures(burst.requests, self._rule) for place, burst in bursts.items()}

    async def _send(self, step: Pass) -> None:
        for side in self._sides.values():
            await side.begin(step.index)
        for cell, arm in step.order:
            burst = await self._sides[arm].shoot(cell)
            if burst.fault is not None:
                raise MeasurementError(_twice(burst.fault, self._sides[arm].log_tail()))
        for side in self._sides.values():
            await side.end()

    def _each_request(self) -> Mapping[str, list[float | None]]:
        """Return the figures of every request of the last pass on the server under test, for percentiles."""
        bursts = self._sides[SUBJECT].records[-1].bursts.values()
        requests = [request for burst in bursts for request in burst.requests]
        gaps: list[float | None] = [gap for request in requests for gap in request.itl_ms]
        return {
            "ttft_ms": [request.ttft_ms for request in requests],
            "tpot_ms": [request.tpot_ms_by(self._rule or request.tpot_rule) for request in requests],
            "e2el_ms": [request.e2el_ms for request in requests],
            "itl_ms": gaps,
        }

    # ------------------------------------------------------------------ the result
    def _result(self) -> Result:
        verdicts = self._verdicts()
        result = self._side_result(SUBJECT, verdicts)
        if REFERENCE not in self._sides:
            return result
        reference = self._side_result(REFERENCE, [])
        ratio = self._sampler.summary(main_metric(self._spec.load), None) if not self._failure else None
        return explain(replace(result, against=reference), None if ratio is None else ratio.theta)

    def _side_result(self, arm: Arm, verdicts: list[Verdict]) -> Result:
        side = self._sides[arm]
        rounds = () if self._failure else self._sampler.round_passes
        kept = [burst for record in side.kept(rounds) for burst in record.bursts.values()]
        everything = side.everything()
        spoiled = [request for burst in everything for request in (*burst.spoiled, *burst.requests)]
        measured = Measured(
            cells=[burst_figures(burst.requests, self._rule or "n_minus_1") for burst in kept],
            requests=[request for burst in kept for request in burst.requests],
            spoiled=[request for request in spoiled if not request.valid],
            attempts=sum(len(burst.attempts) for burst in everything),
            faults=sum(burst.server_faults for burst in everything),
            rounds=len(rounds),
            rule=self._rule,
            acceptance=side.acceptance(rounds),
        )
        return replace(collect(measured, verdicts, side.facts()), notes=side.notes())

    def _verdicts(self) -> list[Verdict]:
        if self._failure is None:
            verdicts = list(self._sampler.outcome)
            if not verdicts and self._sampler.reason:
                verdicts = [unmeasured("INCONCLUSIVE", self._sampler.reason)]
        else:
            verdicts = [without_figures(claim, "ERROR", self._failure) for claim in self._claims]
            verdicts = verdicts or [unmeasured("ERROR", self._failure)]
        everything = [burst for side in self._sides.values() for burst in side.everything()]
        faults = sum(burst.server_faults for burst in everything)
        asked = any(limit.metric == "error_rate" for limit in self._spec.limits)
        if asked or faults:
            attempts = sum(len(burst.attempts) for burst in everything)
            verdicts.append(judge_error_rate(faults, attempts, self._spec.max_error_rate))
        return verdicts


def unmeasured(outcome: Outcome, reason: str) -> Verdict:
    """Return the verdict of a mark without limits that could not be measured."""
    return Verdict("measurement", outcome, None, None, None, None, None, reason)


def _twice(request: RequestResult, log_tail: str) -> str:
    """Say why a cell could not be measured, in the server's words and ours."""
    reason = request.reason or "not valid"
    text = f"a request failed twice ({reason}): {SENTENCES.get(reason, '')}"
    if request.error:
        text += f" Seen: {request.error}"
    return f"{text}\nlast lines of the server's log:\n{log_tail}" if log_tail else text
