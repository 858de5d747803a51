"""A/B by restart: starts two servers in blocks A B B A and measures every gate of the pair in each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pytest_sparkperf.adapters.http import httpx, open_async_client
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.blocks import (
    BLOCKS,
    BY_RESTART,
    Block,
    block_plan,
    judge_blocks,
    ratio_of_blocks,
)
from pytest_sparkperf.core.budget import Budget
from pytest_sparkperf.core.ceiling import Ceiling
from pytest_sparkperf.core.compare import explain
from pytest_sparkperf.core.design import claims_of, judges_acceptance, main_metric, plan_of
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.judge import without_figures
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.order import SUBJECT, Arm
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.result import Result, TpotRule, Verdict
from pytest_sparkperf.core.sampling import Plan, Sampler
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.experiment.measure import REFERENCE, Conditions
from pytest_sparkperf.experiment.passes import PassRunner, Thermometer, sample
from pytest_sparkperf.experiment.results import Part, arm_result, counted_verdicts, unmeasured
from pytest_sparkperf.experiment.side import Side


class BlockServers(Protocol):
    """Where servers come from; only one is up at a time."""

    def start(self, arm: Arm) -> Server:
        """Start the server of an arm anew; raises ServerError."""

    def stop(self, server: Server) -> None:
        """Stop it, and wait until its memory is there again."""

    def side(self, arm: Arm, server: Server, client: httpx.AsyncClient, spec: GateSpec) -> Side:
        """Return what sends the load of a gate to a started server."""


@dataclass(frozen=True, slots=True)
class RestartedServers:
    """Starts the variants of a comparison anew for each block.

    ``check`` refuses a load that does not fit, ``look`` sees each idle server before it is stopped.
    """

    launch: Callable[[Variant], Server]
    variants: Mapping[Arm, Variant]
    prompts: Sequence[Prompt]
    check: Callable[[Server, Load], None]
    look: Callable[[Server], None] = lambda _: None
    ceiling: Callable[[Variant, Server], Ceiling | None] = lambda _variant, _server: None

    def start(self, arm: Arm) -> Server:
        """Start the server of an arm anew; raises ServerError."""
        return self.launch(self.variants[arm])

    def stop(self, server: Server) -> None:
        """Stop it; the next start waits for its memory."""
        try:
            self.look(server)
        finally:
            server.stop()

    def side(self, arm: Arm, server: Server, client: httpx.AsyncClient, spec: GateSpec) -> Side:
        """Return what sends the load of a gate to a started server; raises ConfigError where it cannot."""
        self.check(server, spec.load)
        variant = self.variants[arm]
        return Side(variant, server, client, spec.load, self.prompts, self.ceiling(variant, server))


@dataclass(slots=True)
class _Gate:
    """One gate on its way through the blocks."""

    spec: GateSpec
    conditions: Conditions
    rule: TpotRule | None = None
    failure: str | None = None
    blocks: list[Block] = field(default_factory=list)
    parts: dict[Arm, list[Part]] = field(default_factory=lambda: {SUBJECT: [], REFERENCE: []})

    async def measure(self, arm: Arm, side: Side, thermometer: Thermometer) -> None:
        """Measure one block; after a failure there is nothing left to measure."""
        if self.failure is not None:
            return
        sampler = Sampler(block_plan(self._plan))
        accepted = arm == SUBJECT and judges_acceptance(self.spec)
        runner = PassRunner({SUBJECT: side}, self.rule, accepted=accepted, watch=self.conditions.watch)
        budget = Budget(self.spec.budget_s, self.conditions.last_pass_s)
        try:
            async with asyncio.timeout(budget.longest_s):
                rounds = await sample(sampler, runner, thermometer)
        except (MeasurementError, TimeoutError) as error:
            self.failure = str(error) or budget.overrun()
            self.parts[arm].append(Part(side, ()))
            return
        self.rule = runner.rule
        self.blocks.append(Block(arm, rounds, sampler.reason))
        self.parts[arm].append(Part(side, sampler.round_passes))

    def result(self) -> Result:
        """Judge what the blocks brought."""
        sides = [part.side for parts in self.parts.values() for part in parts]
        found = arm_result(
            self.parts[SUBJECT], self.rule, [*self._verdicts(), *counted_verdicts(sides, self.spec)]
        )
        against = arm_result(self.parts[REFERENCE], self.rule, [])
        both = replace(found, against=against, notes=(*found.notes, BY_RESTART))
        if self.failure is not None:
            return both
        ratio = ratio_of_blocks(self.blocks, main_metric(self.spec.load), self._plan)
        return explain(both, None if ratio is None else ratio.theta)

    def _verdicts(self) -> Sequence[Verdict]:
        claims = claims_of(self.spec)
        if self.failure is not None:
            failed = [without_figures(claim, "ERROR", self.failure) for claim in claims]
            return failed or [unmeasured("ERROR", self.failure)]
        return judge_blocks(self.blocks, claims, self._plan)

    @property
    def _plan(self) -> Plan:
        one = self.conditions
        return plan_of(self.spec, gates=one.gates, thermal=one.thermal, constants=one.constants)


async def run_blocks(
    specs: Sequence[GateSpec],
    servers: BlockServers,
    conditions: Conditions,
    thermometer: Thermometer = lambda: None,
) -> list[Result]:
    """Measure gates on one pair of servers that cannot be up together; return their results in order.

    Four starts serve them all. What a gate cannot measure is its own ERROR; raises ServerError for a server
    that cannot be started. A gate's ``budget_s`` bounds each block, not their sum: a pair of blocks is
    worth nothing in part.
    """
    gates = [_Gate(spec, conditions) for spec in specs]
    for arm in BLOCKS:
        server = servers.start(arm)
        try:
            async with open_async_client(server.url, api_key=server.api_key) as client:
                for gate in gates:
                    await gate.measure(arm, servers.side(arm, server, client, gate.spec), thermometer)
        finally:
            servers.stop(server)
        if all(gate.failure is not None for gate in gates):
            break
    return [gate.result() for gate in gates]
