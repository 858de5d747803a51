"""One measurement: warm-up and rounds on one server or two in turn, as the sampler asks, and the verdicts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_sparkperf.core.blocks import IN_TURN
from pytest_sparkperf.core.budget import LAST_PASS_S, Budget
from pytest_sparkperf.core.compare import explain
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.design import claims_of, judges_acceptance, main_metric, plan_of, record_plan
from pytest_sparkperf.core.errors import BusyError, MeasurementError
from pytest_sparkperf.core.evidence import Evidence, Moment, evidence_of, hottest_c
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.heat import NO_HEAT, Thermal
from pytest_sparkperf.core.judge import without_figures
from pytest_sparkperf.core.order import SUBJECT, Arm
from pytest_sparkperf.core.result import Result, TpotRule, Verdict
from pytest_sparkperf.core.sampling import Pass, Plan, Sampler
from pytest_sparkperf.core.standard import Standard
from pytest_sparkperf.experiment.known import Glance
from pytest_sparkperf.experiment.passes import PassRunner, Unwatched, Watch
from pytest_sparkperf.experiment.results import Part, arm_result, counted_verdicts, unmeasured
from pytest_sparkperf.experiment.side import Side

REFERENCE: Arm = "A"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement depends on besides its gate: how many limits the session has, and the machine.

    A pass that is under way when the budget is spent gets ``last_pass_s`` at least. ``watch`` looks at the
    machine meanwhile.
    ``standard`` replaces the gate's own claims where stored runs are among what it is judged by; ``rule`` is
    the TPOT rule of those runs. ``keep``: measured as a run must be that is to be recorded.
    """

    gates: int
    thermal: Thermal = NO_HEAT
    constants: Constants = ASSUMED
    glance: Glance = field(default=lambda: ())
    standard: Standard | None = None
    rule: TpotRule | None = None
    keep: bool = False
    last_pass_s: float = LAST_PASS_S
    watch: Watch = field(default_factory=Unwatched)

    def thermometer(self) -> float | None:
        """Return the temperature of the hottest GPU; None where there is nothing to read."""
        return hottest_c(self.glance())

    def plan(self, spec: GateSpec) -> Plan:
        """Return how a gate is sampled under these conditions."""
        plan = plan_of(spec, gates=self.gates, thermal=self.thermal, constants=self.constants)
        return record_plan(plan) if self.keep else plan


class Measurement:
    """Drives one sampler: sends what it asks for until it has heard enough.

    ``sides`` holds the server under test as B and, for an A/B, the one it is compared with as A.
    """

    def __init__(self, sides: Mapping[Arm, Side], spec: GateSpec, conditions: Conditions) -> None:
        self._sides = sides
        self._spec = spec
        standard = conditions.standard or Standard(tuple(claims_of(spec)))
        self._claims = standard.claims
        self._sampler = Sampler(conditions.plan(spec), self._claims, standard.baselines)
        self._runner = PassRunner(
            sides, conditions.rule, accepted=judges_acceptance(spec), watch=conditions.watch
        )
        self._glance = conditions.glance
        self._moments: dict[int, Moment] = {}
        self._budget = Budget(spec.budget_s, conditions.last_pass_s)
        self._failure: str | None = None

    async def run(self) -> Result:
        """Measure until every limit is decided or the budget is spent."""
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(self._budget.longest_s):
                while (step := self._sampler.next_pass()) is not None:
                    await self._take(step, begun_s)
        except BusyError as error:
            self._sampler.stop(str(error))
        except MeasurementError as error:
            self._failure = str(error)
        except TimeoutError:
            self._sampler.stop(self._budget.overrun())
        return self._result()

    async def run_for_keeps(self) -> tuple[Result, Evidence]:
        """Measure as :meth:`run` does; return also what a baseline may keep of it."""
        result = await self.run()
        if self._failure is not None:
            return result, Evidence()
        kept = self._sides[SUBJECT].kept(self._sampler.round_passes)
        answers = [request for one in kept for burst in one.bursts.values() for request in burst.requests]
        return result, evidence_of(self._sampler, self._moments, answers)

    async def warm_up(self) -> None:
        """Send passes until the server is warm, and no more; raises MeasurementError for one that fails."""
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(self._budget.longest_s):
                while self._sampler.state == "warm-up" and (step := self._sampler.next_pass()) is not None:
                    await self._take(step, begun_s)
        except TimeoutError:
            raise MeasurementError(self._budget.overrun()) from None

    async def _take(self, step: Pass, begun_s: float) -> None:
        values = await self._runner.send(step)
        at_s = time.monotonic() - begun_s
        moment = self._moments[step.index] = Moment(at_s, self._glance())
        self._sampler.add(
            values,
            requests=self._runner.each_request(),
            temperature_c=moment.temperature_c,
            at_s=at_s,
            still_compiling=self._runner.compiling,
        )
        if at_s > self._budget.seconds:
            self._sampler.stop(self._budget.spent())

    # ------------------------------------------------------------------ the result
    def _result(self) -> Result:
        verdicts = self._verdicts()
        result = self._side_result(SUBJECT, verdicts)
        if REFERENCE not in self._sides:
            return result
        reference = self._side_result(REFERENCE, [])
        ratio = self._sampler.summary(main_metric(self._spec.load), None) if not self._failure else None
        together = replace(result, against=reference, notes=(*result.notes, IN_TURN))
        return explain(together, None if ratio is None else ratio.theta)

    def _side_result(self, arm: Arm, verdicts: list[Verdict]) -> Result:
        rounds = () if self._failure else self._sampler.round_passes
        return arm_result([Part(self._sides[arm], rounds)], self._runner.rule, verdicts)

    def _verdicts(self) -> list[Verdict]:
        if self._failure is None:
            verdicts = list(self._sampler.outcome)
            # Where only outputs are asked for, the speed beside them may stay open.
            if not verdicts and self._sampler.reason and not self._spec.same_output:
                verdicts = [unmeasured("INCONCLUSIVE", self._sampler.reason)]
        else:
            verdicts = [without_figures(claim, "ERROR", self._failure) for claim in self._claims]
            verdicts = verdicts or [unmeasured("ERROR", self._failure)]
        return verdicts + counted_verdicts(tuple(self._sides.values()), self._spec)
