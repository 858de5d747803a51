"""A calibration of simulated servers whose starts differ by a known factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from statistics import stdev
from typing import Protocol

import pytest
from simulator_process import SimProcess, StartSimulator

from pytest_sparkperf.adapters.server import Server, attach_server
from pytest_sparkperf.core.errors import ConfigError, MeasurementError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.targets import SIMULATOR, Target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.calibrate import Job, Outside, run_calibration

VARIANT = make_variant(SIMULATOR)
LOAD = Load(output_tokens=64)
# So far apart that other work on the machine is small beside it.
SLOWDOWNS = (0.2, 0.23, 0.27, 0.32, 0.38)
QUICK = (0.25,)

Start = Callable[[Variant], Server]


class Starter(Protocol):
    def __call__(self, *slowdowns: float, fault: str | None = None) -> Start:
        """Return what starts one simulator after the other."""


@pytest.fixture
def starter(simulator: StartSimulator) -> Iterator[Starter]:
    started: list[SimProcess] = []

    def make(*slowdowns: float, fault: str | None = None) -> Start:
        left = iter(slowdowns)
        flags = ("--jit-s", "0") if fault is None else ("--jit-s", "0", "--fault", fault)

        def start(_: Variant) -> Server:
            started.append(simulator(*flags, "--slowdown", str(next(left)), fresh=True))
            return attach_server(make_variant(Target("sim", "attach", urls=((None, started[-1].url),))))

        return start

    yield make
    for process in started:
        process.stop()


@pytest.mark.slow
def test_starts_that_differ_are_found_to_scatter_and_a_settled_temperature_is_the_plateau(
    starter: Starter,
) -> None:
    said: list[str] = []
    seconds = count(step=400)
    outside = Outside(
        starter(*SLOWDOWNS),
        now=lambda: "2026-11-30T16:05:34Z",
        thermometer=lambda: 71.0,
        say=said.append,
        clock=lambda: float(next(seconds)),
    )

    found, server = run_calibration(Job(VARIANT, rounds=3, load=LOAD), outside)

    truth = stdev([math.log(slowdown) for slowdown in SLOWDOWNS])
    spread = found.spreads["decode_tok_s"]
    assert spread.launch_sd == pytest.approx(truth, rel=0.4)
    assert spread.round_sd < truth / 2
    assert {"ttft_ms", "e2el_ms", "output_tok_s"} <= set(found.spreads)
    assert (found.launches, found.rounds) == (5, 3)
    assert found.plateaus_c == {found.workload: 71.0}
    assert found.constants().launch_sd == spread.launch_sd
    assert said == [f"start {number} of 5: sim k=0" for number in range(1, 6)]
    assert server.simulated


@pytest.mark.soak
def test_a_temperature_that_goes_on_rising_is_no_plateau(starter: Starter) -> None:
    readings, seconds = count(), count(step=400)
    outside = Outside(
        starter(*QUICK * 5),
        now=lambda: "2026-11-30T16:05:34Z",
        thermometer=lambda: 40.0 + 2 * next(readings),
        clock=lambda: float(next(seconds)),
    )

    found, _ = run_calibration(Job(VARIANT, rounds=3, load=LOAD), outside)

    assert found.plateaus_c == {}


def test_a_server_that_fails_its_requests_ends_the_calibration(
    starter: Starter,
) -> None:
    outside = Outside(starter(*QUICK, fault="error_after=3"), now=lambda: "")

    with pytest.raises(MeasurementError, match="a request failed twice"):
        run_calibration(Job(VARIANT, rounds=3, load=LOAD), outside)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"launches": 4},
            (
                "4 starts cannot be calibrated on: use 5 to 20; fewer say too little about how far starts "
                "lie apart"
            ),
        ),
        ({"rounds": 2}, "2 rounds cannot be calibrated on: use 3 to 12 of each start"),
        (
            {"variant": make_variant(Target("rented", "attach", urls=((0, "http://x:8000"),)))},
            (
                "target 'rented' is attached, and a calibration starts its server 5 times: use a target that "
                "is started, such as launch: vllm"
            ),
        ),
    ],
)
def test_what_cannot_be_calibrated_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(Job(VARIANT), **change)  # type: ignore[arg-type]  # one field at a time

    assert str(caught.value) == text
