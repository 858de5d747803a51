"""What is known of the machine under a server: its key, its spreads, its thermometer, what it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pytest_sparkperf.adapters.calibration_file import DEFAULT_FOLDER, read_calibration
from pytest_sparkperf.adapters.checkpoint import find_checkpoint, read_gb_per_token
from pytest_sparkperf.adapters.command import run_through
from pytest_sparkperf.adapters.machine import HostReading, read_host, read_host_elsewhere
from pytest_sparkperf.adapters.nvidia_smi import GpuReading, NvidiaSmi
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.calibration import Calibration
from pytest_sparkperf.core.ceiling import Ceiling, bandwidth_of, ceiling_of
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.fingerprint import Surroundings
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.hardware import Machine
from pytest_sparkperf.core.heat import NO_HEAT, Thermal
from pytest_sparkperf.core.lookup import Problem
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.core.vllm_options import LOOPBACK
from pytest_sparkperf.experiment.baselines import identify, surroundings_of

# nvidia-smi answers at once, a connection to where it is may not.
_ELSEWHERE_TIMEOUT_S = 20.0
# Reads what changes of the GPUs while they work; empty where there is nothing to read.
Glance = Callable[[], tuple[GpuState, ...]]


@dataclass(frozen=True, slots=True)
class Known:
    """What a verdict on one server may rest on.

    ``machine`` is a Problem where it cannot be told; ``unfit`` says why its hardware is not itself.
    """

    machine: Machine | Problem
    constants: Constants = ASSUMED
    thermal: Thermal = NO_HEAT
    glance: Glance = field(default=lambda: ())
    surroundings: Surroundings = field(default_factory=Surroundings)
    unfit: str | None = None


class Knowledge:
    """Looks machines up; each is read once, when a server first needs it."""

    def __init__(self, root: Path) -> None:
        self._folder = root / DEFAULT_FOLDER
        self._read: dict[tuple[str, ...], tuple[HostReading, GpuReading]] = {}

    def of(self, variant: Variant, server: Server, workload: str) -> Known:
        """Return what is known for a workload on a server's machine.

        Raises ConfigError for a calibration that cannot be read: constants are never guessed where some were
        measured; ServerError for a probe that gives no answer.
        """
        host, gpus = self._reading(variant.probe)
        on_cpu = server.facts.get("device") == "cpu"
        machine = identify(variant, simulated=server.simulated, on_cpu=on_cpu, host=host, gpus=gpus)
        found = self._calibration(machine)
        constants = ASSUMED if found is None else found.constants()
        around = Surroundings() if isinstance(machine, Problem) else surroundings_of(machine, host, gpus)
        if server.simulated or on_cpu:
            return Known(machine, constants, surroundings=around)
        seen = bool(variant.probe) or is_here(server)
        if not seen or gpus.temperature_c is None:
            # A GPU that cannot be read is taken to have begun stone cold.
            return Known(machine, constants, Thermal("assumed"), surroundings=around)
        thermal = Thermal("soak") if found is None else found.thermal(workload, "soak")
        return Known(machine, constants, thermal, _smi(variant.probe).moment, around, gpus.problem)

    def ceiling(self, variant: Variant, server: Server) -> Ceiling | None:
        """Return the most that one stream can get of a server; None where its memory or model is unknown."""
        if server.simulated:
            told = server.facts
            return ceiling_of(
                bandwidth_gb_s=told.get("bandwidth_gb_s"), gb_per_token=told.get("gb_per_token"), k=server.k
            )
        host, gpus = self._reading(variant.probe)
        on_cpu = server.facts.get("device") == "cpu"
        machine = identify(variant, simulated=False, on_cpu=on_cpu, host=host, gpus=gpus)
        if isinstance(machine, Problem):
            return None
        bandwidth = bandwidth_of([gpu.name for gpu in machine.gpus for _ in range(machine.nodes)])
        folder = None if bandwidth is None else find_checkpoint(variant.model or server.model)
        if folder is None:
            return None
        # Where somebody else writes the command, or a recipe, nobody here knows whether it quantizes.
        on_load = variant.launch not in ("vllm", "docker") or "quantization" in variant.args
        weights = read_gb_per_token(folder, quantized_on_load=on_load)
        return ceiling_of(bandwidth_gb_s=bandwidth, gb_per_token=weights, k=server.k)

    def _calibration(self, machine: Machine | Problem) -> Calibration | None:
        return None if isinstance(machine, Problem) else read_calibration(self._folder, machine.slug)

    def _reading(self, probe: tuple[str, ...]) -> tuple[HostReading, GpuReading]:
        """Read this machine, or the one that a probe reaches."""
        if probe not in self._read:
            host = read_host_elsewhere(run_through(probe)) if probe else read_host()
            self._read[probe] = host, _smi(probe).read()
        return self._read[probe]


def _smi(probe: tuple[str, ...]) -> NvidiaSmi:
    return NvidiaSmi(run_through(probe), timeout_s=_ELSEWHERE_TIMEOUT_S) if probe else NvidiaSmi()


def is_here(server: Server) -> bool:
    """Say whether a server runs on this machine."""
    return urlsplit(server.url).hostname in LOOPBACK
