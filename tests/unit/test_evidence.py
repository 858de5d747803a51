from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_sparkperf.core.design import record_plan
from pytest_sparkperf.core.evidence import Evidence, Moment, evidence_of
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.heat import Thermal
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.sampling import Plan, Sampler

PLAN = record_plan(Plan((0, 1, 2, 3)))
PASS_S = 10.0
LOOP = RequestResult(True, token_ids=(7,) * 64)
PLAIN = RequestResult(True, token_ids=tuple(range(64)))


def gpu(temperature_c: float = 61.0, clock_mhz: float = 2400.0, *throttled: str) -> GpuState:
    return GpuState(
        "NVIDIA GB10",
        temperature_c=temperature_c,
        sm_clock_mhz=clock_mhz,
        utilization=0.97,
        throttled=throttled,
    )


def sampled(
    gpus: Sequence[GpuState] = (), *, plan: Plan = PLAN, answers: Sequence[RequestResult] = ()
) -> Evidence:
    """Return the evidence of a run of 100 tok/s; ``gpus`` are shown by one pass after the other, then on."""
    sampler = Sampler(plan)
    moments = {}
    while (step := sampler.next_pass()) is not None:
        at_s = PASS_S * (step.index + 1)
        shown = (gpus[min(step.index, len(gpus) - 1)],) if gpus else ()
        moments[step.index] = moment = Moment(at_s, shown)
        values = {place: {"decode_tok_s": 100.0, "ttft_ms": 150.0} for place in step.order}
        sampler.add(values, temperature_c=moment.temperature_c, at_s=at_s)
    return evidence_of(sampler, moments, answers)


def test_a_run_to_be_recorded_has_eight_rounds_and_keeps_every_figure_it_has() -> None:
    found = sampled()

    assert found.rounds == 8
    assert found.steady
    assert {name: figure.value for name, figure in found.figures.items()} == {
        "decode_tok_s": 100.0,
        "ttft_ms": 150.0,
    }
    assert found.temperature_c is None
    assert found.rise_c is None
    assert dict(found.thermal) == {"load_s": 90.0, "slope_percent_per_min": 0.0}


def test_heat_is_kept_from_the_first_round_to_the_last() -> None:
    found = sampled([gpu(50), gpu(60), gpu(60), gpu(61), gpu(62, 2350)])

    assert found.rise_c == 2
    assert found.temperature_c == 61.4
    assert dict(found.thermal) == {
        "temperature_start_c": 60,
        "temperature_end_c": 62,
        "clock_start_mhz": 2400,
        "clock_end_mhz": 2350,
        "load_s": 90.0,
        "slope_percent_per_min": 0.0,
    }
    assert found.gpus == (gpu(62, 2350),)


def test_a_gpu_that_warms_is_soaked_before_its_run_is_recorded() -> None:
    warming = [gpu(40 + degree) for degree in range(20)]

    found = sampled(warming, plan=record_plan(Plan((0, 1, 2, 3), thermal=Thermal("soak"))))

    assert found.rise_c == 0
    assert found.temperature_c == 59


def test_a_known_plateau_does_not_replace_the_soak_of_a_record() -> None:
    assert record_plan(Plan((0,), thermal=Thermal("plateau", 70))).thermal == Thermal("soak")


def test_a_reading_that_is_missing_is_no_temperature() -> None:
    found = sampled([gpu(60), gpu(60), GpuState("NVIDIA GB10")])

    assert (found.temperature_c, found.rise_c) == (None, None)


def test_throttling_and_a_stuck_clock_show() -> None:
    found = sampled([gpu(60, 799), gpu(60, 799, "hardware slowdown"), gpu(60, 799)])

    assert found.throttled == ("hardware slowdown",)
    assert found.stuck_mhz == 799
    assert sampled([gpu()]).stuck_mhz is None


def test_shares_of_flagged_answers_are_kept() -> None:
    assert dict(sampled(answers=[LOOP, PLAIN, PLAIN, PLAIN]).flags) == {"degenerate": 0.25}
    assert dict(sampled(answers=[PLAIN]).flags) == {}


@pytest.mark.parametrize("stopped_after", [0, 3])
def test_a_run_that_never_became_steady_has_no_rounds(stopped_after: int) -> None:
    sampler = Sampler(PLAN)
    for index in range(stopped_after):
        values = {place: {"decode_tok_s": 100.0 + 50 * index} for place in sampler.next_pass().order}  # type: ignore[union-attr]  # still in warm-up
        sampler.add(values)
    sampler.stop("the budget was spent")

    found = evidence_of(sampler, {}, [])

    assert found == Evidence()
    assert not found.steady
