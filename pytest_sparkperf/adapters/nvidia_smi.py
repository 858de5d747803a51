"""Asks nvidia-smi about the GPUs: who they are, how warm, how fast, and whether they are fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_sparkperf.adapters.command import Answer, Run, run_command
from pytest_sparkperf.core.gpu import (
    ALIASES,
    QUERY_FIELDS,
    GpuState,
    invalid_field,
    parse_banner,
    parse_mig_profiles,
    parse_query,
)

# On a broken GPU nvidia-smi hangs for a minute; a healthy one answers in well under a second.
_TIMEOUT_S = 5.0
_MOMENT_FIELDS = (
    "name",
    "temperature.gpu",
    "clocks.sm",
    "power.draw",
    "utilization.gpu",
    "clocks_event_reasons.active",
)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What nvidia-smi said of all GPUs.

    ``absent``: there is no nvidia-smi, so nothing is known. ``problem``: why the GPUs could not be read, or
    are not fit to be measured on.
    """

    gpus: tuple[GpuState, ...] = ()
    mig_profiles: tuple[str, ...] = ()
    cuda: str | None = None
    absent: bool = False
    problem: str | None = None

    @property
    def driver(self) -> str | None:
        """The driver's version."""
        return next((gpu.driver for gpu in self.gpus if gpu.driver), None)

    @property
    def temperature_c(self) -> float | None:
        """The temperature of the hottest GPU."""
        known = [gpu.temperature_c for gpu in self.gpus if gpu.temperature_c is not None]
        return max(known, default=None)


class NvidiaSmi:
    """Reads GPUs through nvidia-smi; nothing is called before a method is."""

    def __init__(
        self, run: Run = run_command, *, program: str = "nvidia-smi", timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._run = run
        self._program = program
        self._timeout_s = timeout_s
        self._moment_fields: tuple[str, ...] = _MOMENT_FIELDS

    def read(self) -> GpuReading:
        """Read everything about the GPUs, MIG devices and the CUDA version included."""
        reading, _ = self._query(QUERY_FIELDS)
        if not reading.gpus:
            return reading
        driver, cuda = parse_banner(self._ask().text)
        gpus = tuple(gpu if gpu.driver else replace(gpu, driver=driver) for gpu in reading.gpus)
        profiles: tuple[str, ...] = ()
        if any(gpu.mig_enabled for gpu in gpus):
            profiles = parse_mig_profiles(self._ask("-L").text)
        return replace(reading, gpus=gpus, cuda=cuda, mig_profiles=profiles)

    def moment(self) -> tuple[GpuState, ...]:
        """Read what changes while a server works: temperature, clock, power, load, throttle reasons.

        Empty where it cannot be read. One call of some 20 ms: not for the middle of a measured request.
        """
        reading, self._moment_fields = self._query(self._moment_fields)
        return reading.gpus

    def temperature_c(self) -> float | None:
        """Return the temperature of the hottest GPU; None where there is no thermometer to read."""
        return GpuReading(self.moment()).temperature_c

    def _ask(self, *arguments: str) -> Answer:
        return self._run((self._program, *arguments), self._timeout_s)

    def _query(self, fields: tuple[str, ...]) -> tuple[GpuReading, tuple[str, ...]]:
        """Ask for fields, without those this driver does not know; return also the ones it knows."""
        while fields:
            answer = self._ask(f"--query-gpu={','.join(fields)}", "--format=csv")
            unknown = invalid_field(answer.text) or invalid_field(answer.stderr.decode("utf-8", "replace"))
            if unknown not in fields:
                return _reading(answer), fields
            other = [ALIASES[unknown]] if unknown in ALIASES else []
            fields = tuple(one for name in fields for one in (other if name == unknown else [name]))
        return GpuReading(problem="nvidia-smi knows none of the fields it was asked for"), fields


def _reading(answer: Answer) -> GpuReading:
    if answer.absent:
        return GpuReading(absent=True, problem=answer.problem)
    gpus = parse_query(answer.text) if answer.status == 0 else ()
    if not gpus:
        return GpuReading(problem=f"nvidia-smi does not show the GPUs: {answer.complaint}")
    if any(gpu.needs_reset for gpu in gpus):
        problem = "nvidia-smi says that the GPU requires a reset: reset it or reboot before measuring on it"
        return GpuReading(gpus, problem=problem)
    return GpuReading(gpus)
