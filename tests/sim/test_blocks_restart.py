"""An A/B by restart on simulated servers, of which only one is up at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from simulator_process import SimProcess, StartSimulator

from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.adapters.server import Server, attach_server
from pytest_sparkperf.core.blocks import BY_RESTART
from pytest_sparkperf.core.gate import GateSpec, parse_mark
from pytest_sparkperf.core.heat import NO_HEAT
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.blocks import run_blocks
from pytest_sparkperf.experiment.measure import Conditions
from pytest_sparkperf.experiment.side import Side

SHORT = {"output_tokens": 64, "max_rounds": 3}


@dataclass
class OneAtATime:
    """Starts simulators, and fails the test if two were up together."""

    simulator: StartSimulator
    slowdowns: dict[Arm, str]
    flags: tuple[str, ...] = ()
    started: list[Arm] = field(default_factory=list)
    up: SimProcess | None = None

    def variant(self) -> Variant:
        assert self.up is not None
        return make_variant(Target("sim", "attach", urls=((None, self.up.url),)))

    def start(self, arm: Arm) -> Server:
        assert self.up is None
        self.up = self.simulator("--jit-s", "0", "--slowdown", self.slowdowns[arm], *self.flags, fresh=True)
        self.started.append(arm)
        return attach_server(self.variant())

    def stop(self, server: Server) -> None:
        assert self.up is not None
        assert server.url == self.up.url
        self.up.stop()
        self.up = None

    def side(self, _arm: Arm, server: Server, client: httpx.AsyncClient, spec: GateSpec) -> Side:
        return Side(self.variant(), server, client, spec.load, shipped_prompts(spec.load.concurrency))


@pytest.mark.slow
@pytest.mark.parametrize("gates", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_four_starts_judge_every_gate_of_the_pair(simulator: StartSimulator, gates: int) -> None:
    servers = OneAtATime(simulator, {"A": "0.3", "B": "0.2"})
    keywords = {"against": {"k": 0}, "min_speedup": 1.1, "min_decode": 1, **SHORT}

    results = asyncio.run(run_blocks([parse_mark(keywords)] * gates, servers, Conditions(2 * gates, NO_HEAT)))

    assert servers.started == ["A", "B", "B", "A"]
    assert servers.up is None
    assert len(results) == gates
    for found in results:
        faster = {verdict.gate: verdict for verdict in found.verdicts}["min_speedup"]
        assert {verdict.outcome for verdict in found.verdicts} == {"PASS"}
        assert found.ratio == pytest.approx(1.5, rel=0.15)
        assert found.against is not None
        assert (found.rounds, found.against.rounds, faster.rounds) == (6, 6, 6)
        assert faster.reason.endswith(BY_RESTART)
        assert BY_RESTART in found.notes
        assert len([request for request in found.requests if request.valid]) == 24


def test_a_gate_that_cannot_be_measured_is_an_error_and_every_server_is_stopped(
    simulator: StartSimulator,
) -> None:
    servers = OneAtATime(simulator, {"A": "0.2", "B": "0.2"}, ("--fault", "error_after=3"))
    spec = parse_mark({"against": {"k": 0}, "min_speedup": 1.3, **SHORT})

    (result,) = asyncio.run(run_blocks([spec], servers, Conditions(gates=1, thermal=NO_HEAT)))

    assert servers.up is None
    assert [verdict.outcome for verdict in result.verdicts] == ["ERROR", "FAIL"]
    assert [verdict.gate for verdict in result.verdicts] == ["min_speedup", "max_error_rate"]
    assert result.ratio is None
