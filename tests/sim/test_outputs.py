"""``same_output`` of a gate on started servers: a second start where needed, an ERROR where it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.bench import Bench
from pytest_sparkperf.experiment.starter import Starter

# So fast that a speed may never be steady beside other load, which is not what these tests are about.
FAST = {"jit-s": 0, "slowdown": 0.01, "max-model-len": 16384, "enable-auto-tool-choice": True}
MEASURED = ("PASS", "INCONCLUSIVE")
SPEC = parse_mark(
    {"against": {"k": 0}, "same_output": True, "min_decode": 1, "output_tokens": 48, "max_rounds": 3}
)


class WatchedStarter(Starter):
    """Notes the k of each start, and how many servers were up before it; one start may fail."""

    def __init__(self, folder: Path, fails_at: int | None = None) -> None:
        super().__init__(lambda: folder)
        self.starts: list[tuple[int | None, int]] = []
        self.servers: list[Server] = []
        self._fails_at = fails_at

    def start(self, variant: Variant) -> Server:
        self.starts.append((variant.k, sum(server.alive() for server in self.servers)))
        if len(self.starts) == self._fails_at:
            raise ServerError("the server did not start")
        self.servers.append(Starter.start(self, variant))
        return self.servers[-1]


def measured(starter: WatchedStarter, folder: Path, fault: str) -> Result:
    target = Target("sim", "sim", args=FrozenMap({**FAST, "fault": fault}))
    variants: dict[Arm, Variant] = {"B": make_variant(target, k=3), "A": make_variant(target, k=0)}
    bench = Bench(expected=tuple(variants.values()), starter=starter, root=folder)
    try:
        return bench.measure(variants, SPEC, gates=1)
    finally:
        bench.close()


def outcomes(result: Result) -> dict[str, str]:
    return {verdict.gate: verdict.outcome for verdict in result.verdicts}


@pytest.mark.slow
def test_the_second_start_finds_no_other_server_up_and_none_is_left(tmp_path: Path) -> None:
    starter = WatchedStarter(tmp_path)

    result = measured(starter, tmp_path, "launch_after=9")

    assert starter.starts == [(3, 0), (0, 1), (0, 0)]
    assert not any(server.alive() for server in starter.servers)
    assert outcomes(result)["min_decode"] in MEASURED
    assert outcomes(result)["same_output"] != "ERROR"


@pytest.mark.slow
def test_a_second_start_that_fails_is_an_error_beside_the_speed(tmp_path: Path) -> None:
    starter = WatchedStarter(tmp_path, fails_at=3)

    result = measured(starter, tmp_path, "launch_after=9")

    assert outcomes(result)["min_decode"] in MEASURED
    assert outcomes(result)["same_output"] == "ERROR"
    assert result.verdicts[-1].reason == "the server did not start"
    assert not any(server.alive() for server in starter.servers)


def test_outputs_of_a_measurement_in_error_are_not_compared(tmp_path: Path) -> None:
    starter = WatchedStarter(tmp_path)

    result = measured(starter, tmp_path, "truncate_after=20")

    assert len(starter.starts) == 2
    assert outcomes(result)["min_decode"] == "ERROR"
    assert outcomes(result)["same_output"] == "ERROR"
    assert result.verdicts[-1].reason == (
        "the outputs were not compared, since the measurement before ended in ERROR"
    )
