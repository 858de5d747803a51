from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pytest_sparkperf.adapters.command import Answer
from pytest_sparkperf.adapters.nvidia_smi import GpuReading, NvidiaSmi
from pytest_sparkperf.core.gpu import QUERY_FIELDS, GpuState

BANNER = "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA Version: 13.0 |\n"
VALUES = {
    "index": "0",
    "name": "NVIDIA H200",
    "driver_version": "580.159.04",
    "memory.total": "143771 MiB",
    "compute_cap": "9.0",
    "power.max_limit": "700.00 W",
    "power.limit": "700.00 W",
    "power.draw": "79.11 W",
    "temperature.gpu": "34",
    "clocks.sm": "345 MHz",
    "utilization.gpu": "0 %",
    "clocks_event_reasons.active": "0x0000000000000001",
    "clocks_throttle_reasons.active": "0x0000000000000001",
    "mig.mode.current": "Disabled",
}
H200 = GpuState("NVIDIA H200", "580.159.04", 143771, "9.0", 700, 700, 79.11, 34, 345, 0.0, reasons=("idle",))


class Smi:
    """Stands in for nvidia-smi, which knows some fields and shows some values."""

    def __init__(self, unknown: Sequence[str] = (), **values: str) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._unknown = unknown
        self._values = VALUES | values

    def __call__(self, arguments: Sequence[str], _timeout_s: float) -> Answer:
        self.calls.append(tuple(arguments[1:]))
        if arguments[1:] == ("-L",):
            return Answer(
                0, b"GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 3g.71gb     Device  0: (UUID: MIG-1)\n"
            )
        if len(arguments) == 1:
            return Answer(0, BANNER.encode())
        fields = arguments[1].removeprefix("--query-gpu=").split(",")
        for field in fields:
            if field in self._unknown:
                return Answer(2, f'Field "{field}" is not a valid field to query.\n\n'.encode())
        rows = [", ".join(fields), ", ".join(self._values[field] for field in fields)]
        return Answer(0, "\n".join(rows).encode())


def saying(answer: Answer) -> Callable[[Sequence[str], float], Answer]:
    return lambda _arguments, _timeout_s: answer


def test_gpus_driver_and_cuda_are_read_with_two_calls() -> None:
    smi = Smi()

    reading = NvidiaSmi(smi).read()

    assert reading == GpuReading((H200,), cuda="13.0")
    assert (reading.driver, reading.temperature_c) == ("580.159.04", 34)
    assert smi.calls == [(f"--query-gpu={','.join(QUERY_FIELDS)}", "--format=csv"), ()]


@pytest.mark.parametrize(
    ("unknown", "gpu"),
    [
        (["clocks_event_reasons.active"], H200),
        (["clocks_event_reasons.active", "clocks_throttle_reasons.active"], replace(H200, reasons=())),
        (["compute_cap", "mig.mode.current"], replace(H200, capability=None)),
        (["driver_version"], H200),
    ],
    ids=["old name of the reasons", "no reasons", "fields of later drivers", "driver from the banner"],
)
def test_a_driver_that_does_not_know_a_field_is_asked_without_it(unknown: list[str], gpu: GpuState) -> None:
    assert NvidiaSmi(Smi(unknown)).read().gpus == (gpu,)


def test_a_driver_that_knows_no_field_ends_in_a_problem() -> None:
    reading = NvidiaSmi(Smi([*VALUES, "clocks.current.sm"])).read()

    assert reading == GpuReading(problem="nvidia-smi knows none of the fields it was asked for")


def test_mig_devices_are_listed_where_mig_is_on() -> None:
    reading = NvidiaSmi(Smi(**{"mig.mode.current": "Enabled"})).read()

    assert reading.mig_profiles == ("3g.71gb",)


def test_a_moment_is_one_small_call_that_remembers_what_the_driver_knows() -> None:
    smi = Smi(["clocks_event_reasons.active"])
    nvidia = NvidiaSmi(smi)

    assert nvidia.temperature_c() == 34
    assert nvidia.moment() == (
        GpuState(
            "NVIDIA H200",
            power_draw_w=79.11,
            temperature_c=34,
            sm_clock_mhz=345,
            utilization=0.0,
            reasons=("idle",),
        ),
    )
    assert len(smi.calls) == 3


@pytest.mark.parametrize(
    ("answer", "reading"),
    [
        (
            Answer(None, problem="there is no program 'nvidia-smi' on PATH", absent=True),
            GpuReading(absent=True, problem="there is no program 'nvidia-smi' on PATH"),
        ),
        (
            Answer(None, problem="nvidia-smi gave no answer within 5 s"),
            GpuReading(problem="nvidia-smi does not show the GPUs: nvidia-smi gave no answer within 5 s"),
        ),
        (
            Answer(0, b"Unable to determine the device handle for GPU0000:00:1E.0: Unknown Error\n"),
            GpuReading(
                problem="nvidia-smi does not show the GPUs: Unable to determine the device handle for "
                "GPU0000:00:1E.0: Unknown Error"
            ),
        ),
        (
            Answer(9, b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"),
            GpuReading(
                problem="nvidia-smi does not show the GPUs: NVIDIA-SMI has failed because it couldn't "
                "communicate with the NVIDIA driver."
            ),
        ),
        (Answer(6, b""), GpuReading(problem="nvidia-smi does not show the GPUs: exit status 6")),
    ],
    ids=["absent", "hangs", "lost handle", "no driver", "silent"],
)
def test_gpus_that_cannot_be_read_are_none_with_the_reason(answer: Answer, reading: GpuReading) -> None:
    nvidia = NvidiaSmi(saying(answer))

    assert nvidia.read() == reading
    assert nvidia.temperature_c() is None


def test_a_gpu_that_requires_a_reset_is_unfit() -> None:
    reading = NvidiaSmi(Smi(**{"power.draw": "[GPU requires reset]"})).read()

    assert reading.problem == (
        "nvidia-smi says that the GPU requires a reset: reset it or reboot before measuring on it"
    )
    assert reading.gpus == (replace(H200, power_draw_w=None, needs_reset=True),)
