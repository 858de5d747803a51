"""What a machine is, apart from what runs on it: the key that its baselines are kept under.

In the key: GPU names and count, memory, SM capability, maximum power limit, CPU model and cores,
architecture, number of machines. Not in it, since it changes while the machine stays the same: driver,
clocks, present power limit, free memory, host name, serial numbers, UUIDs.

Devices whose memory is the system's (GB10, Jetson) get neither a memory of their own nor a power limit in the
key: whether nvidia-smi shows these for them changed from driver to driver.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal

from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.targets import Hardware

_UNIFIED = frozenset({"gb10", "thor", "orin", "xavier", "tegra"})
_KIB_PER_GIB = 1024**2
# Installed memory in steps of a quarter of the power of two below it: the kernel keeps a few percent to
# itself (a 128 GiB machine shows 119 to 122), and how much changes with its version. A GPU hides far less.
_SYSTEM_STEPS, _GPU_STEPS = 4, 16
_SLUG_NAME = 60
# ARM's cores say who made them and which part they are, not their name.
_ARM_CORES: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (0x41, 0xD0C): "Neoverse-N1",
        (0x41, 0xD40): "Neoverse-V1",
        (0x41, 0xD42): "Cortex-A78AE",
        (0x41, 0xD49): "Neoverse-N2",
        (0x41, 0xD4F): "Neoverse-V2",
        (0x41, 0xD83): "Neoverse-V3AE",
        (0x41, 0xD84): "Neoverse-V3",
        (0x41, 0xD85): "Cortex-X925",
        (0x41, 0xD87): "Cortex-A725",
    }
)


@dataclass(frozen=True, slots=True, order=True)
class Gpu:
    """One GPU as far as it belongs to the key; empty and 0 stand for unknown, so that GPUs can be sorted."""

    name: str
    memory_gib: float = 0
    capability: str = ""
    max_power_w: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that serves, as its baselines know it.

    ``source``: ``seen`` by our own look, ``declared`` in sparkperf.yaml for a server elsewhere, or
    ``simulator``. ``memory_gib`` is the system's, rounded up to what is installed, where models live in it.
    """

    source: Literal["seen", "declared", "simulator"]
    gpus: tuple[Gpu, ...] = ()
    cpu: str | None = None
    cores: int | None = None
    architecture: str | None = None
    memory_gib: float | None = None
    nodes: int = 1

    @property
    def slug(self) -> str:
        """The name of its folder: readable, file-safe, ending in four digits of the key's digest."""
        if self.source == "simulator":
            return "simulator"
        return "-".join([*self._words(), self.digest[:4]])

    @property
    def digest(self) -> str:
        """SHA-256 of the key in hexadecimal; names that differ in case or in NVIDIA's prefix are one."""
        key = asdict(self) | {"gpus": [asdict(gpu) | {"name": gpu.name.lower()} for gpu in self.gpus]}
        # 128 and 128.0 are one size.
        key["memory_gib"] = self.memory_gib and f"{self.memory_gib:g}"
        for gpu in key["gpus"]:
            gpu["memory_gib"] = f"{gpu['memory_gib']:g}"
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()

    def as_document(self) -> dict[str, Any]:
        """Return the key as plain values for a file, the GPUs counted, unknown values left out."""
        gpus = [
            {
                "name": gpu.name,
                "count": count,
                **_known(asdict(gpu), ("memory_gib", "capability", "max_power_w")),
            }
            for gpu, count in self._counted()
        ]
        rest = _known(asdict(self), ("cpu", "cores", "architecture", "memory_gib"))
        nodes = {"nodes": self.nodes} if self.nodes > 1 else {}
        return {"source": self.source} | ({"gpus": gpus} if gpus else {}) | rest | nodes

    def _words(self) -> Iterator[str]:
        names: dict[str, int] = {}
        for gpu, count in self._counted():
            names[_file_safe(gpu.name)] = names.get(_file_safe(gpu.name), 0) + count
        if names:
            yield "-".join(f"{name}-{count}x" for name, count in names.items())[:_SLUG_NAME].strip("-")
        else:
            yield "cpu"
        memory = max((gpu.memory_gib for gpu in self.gpus), default=0) or self.memory_gib
        yield from [self.architecture] if self.architecture else []
        yield from [f"{self.cores}c"] if self.cores else []
        yield from [f"{memory:g}g"] if memory else []
        yield from [f"{self.nodes}n"] if self.nodes > 1 else []
        yield from ["declared"] if self.source == "declared" else []

    def _counted(self) -> list[tuple[Gpu, int]]:
        return [(gpu, len(list(same))) for gpu, same in groupby(sorted(self.gpus))]


SIMULATED_MACHINE = Machine("simulator")


def seen_machine(
    states: Sequence[GpuState],
    *,
    cpu: str | None,
    cores: int | None,
    architecture: str | None,
    memory_kib: int | None,
    mig_profiles: Sequence[str] = (),
    nodes: int = 1,
) -> Machine:
    """Build the key of a machine we can look at; ``memory_kib`` is MemTotal of ``/proc/meminfo``."""
    gpus = tuple(sorted(_gpu(state) for state in states))
    if mig_profiles:
        boards = {gpu.name for gpu in gpus}
        gpus = tuple(
            Gpu(f"{name} MIG {profile}") for name in sorted(boards) for profile in sorted(mig_profiles)
        )
    own_memory = bool(gpus) and all(gpu.memory_gib or mig_profiles for gpu in gpus)
    system = None if memory_kib is None else rounded_up_gib(memory_kib / _KIB_PER_GIB, _SYSTEM_STEPS)
    return Machine(
        source="seen",
        gpus=gpus,
        cpu=cpu,
        cores=cores,
        architecture=architecture,
        memory_gib=None if own_memory else system,
        nodes=nodes,
    )


def declared_machine(hardware: Hardware) -> Machine:
    """Build the key of a server's machine from what its target says of it."""
    gpu = Gpu(gpu_name(hardware.gpu))
    return Machine("declared", gpus=(gpu,) * hardware.count, memory_gib=hardware.memory_gib)


def machine_from_document(document: Mapping[str, Any]) -> Machine:
    """Build a key from what :meth:`Machine.as_document` gave and a file has kept."""
    gpus: list[Gpu] = []
    for words in document.get("gpus", ()):
        rest = {key: words[key] for key in ("memory_gib", "capability", "max_power_w") if key in words}
        gpus += [Gpu(words["name"], **rest)] * words.get("count", 1)
    rest = {
        key: document[key]
        for key in ("cpu", "cores", "architecture", "memory_gib", "nodes")
        if key in document
    }
    return Machine(document["source"], gpus=tuple(sorted(gpus)), **rest)


def gpu_name(name: str) -> str:
    """Return a GPU's name without what only some tools add: ``NVIDIA Thor`` and ``Thor`` are one device."""
    words = name.replace("(nvgpu)", " ").split()
    return " ".join(words[1:] if len(words) > 1 and words[0].lower() == "nvidia" else words)


def cpu_name(cpuinfo: str) -> str | None:
    """Return the CPU's model from ``/proc/cpuinfo``, several kinds of cores joined by ``+``."""
    models = dict.fromkeys(re.findall(r"^model name\s*:\s*(.+?)\s*$", cpuinfo, re.MULTILINE))
    if models:
        return " + ".join(sorted(_plain_cpu(model) for model in models))
    makers = re.findall(r"^CPU implementer\s*:\s*(\w+)", cpuinfo, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(\w+)", cpuinfo, re.MULTILINE)
    kinds = {(int(maker, 16), int(part, 16)) for maker, part in zip(makers, parts, strict=False)}
    names = sorted(_ARM_CORES.get(kind, f"ARM {kind[0]:#x} {kind[1]:#x}") for kind in kinds)
    return " + ".join(names) or None


def rounded_up_gib(gib: float, steps: int = _SYSTEM_STEPS) -> float:
    """Round up to the next of ``steps`` even parts of the power of two below."""
    part = 2.0 ** math.floor(math.log2(gib)) / steps if gib > 0 else 1.0
    # A figure that lies on a step already must not go up because of its last bit.
    return math.ceil(gib / part - 1e-9) * part


def _gpu(state: GpuState) -> Gpu:
    name = gpu_name(state.name or "unknown GPU")
    unified = bool(_UNIFIED & set(name.lower().split()))
    memory = None if unified else state.memory_mib
    power = None if unified else state.max_power_w
    return Gpu(
        name=name,
        memory_gib=rounded_up_gib(memory / 1024, _GPU_STEPS) if memory else 0,
        capability=state.capability or "",
        max_power_w=round(power) if power else 0,
    )


def _plain_cpu(model: str) -> str:
    text = re.sub(r"\((?:R|TM|tm|r)\)|\bCPU\b|@.*", " ", model)
    return " ".join(re.sub(r"\b\d+-Core Processor\b", " ", text).split())


def _known(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: values[name] for name in names if values[name]}


def _file_safe(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
