from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_sparkperf.core.gpu import GpuState, parse_query
from pytest_sparkperf.core.hardware import (
    SIMULATED_MACHINE,
    Machine,
    cpu_name,
    declared_machine,
    gpu_name,
    machine_from_document,
    rounded_up_gib,
    seen_machine,
)
from pytest_sparkperf.core.targets import Hardware

_GIB = 1024**2
SPARK: dict[str, Any] = {
    "cpu": "Cortex-A725 + Cortex-X925",
    "cores": 20,
    "architecture": "aarch64",
    "memory_kib": int(121.7 * _GIB),
}
XEON: dict[str, Any] = {"cpu": "Intel Xeon", "cores": 16, "architecture": "x86_64", "memory_kib": 200 * _GIB}
GB10 = GpuState("NVIDIA GB10", "580.173.02", capability="12.1", temperature_c=35, sm_clock_mhz=208)
H200 = GpuState("NVIDIA H200", "580.159.04", 143771, "9.0", 700.0, 700.0, 79.11, 34, 345, 0.0)
RTX_PRO = """\
NVIDIA RTX PRO 6000 Blackwell Workstation Edition, 97887 MiB, 600.00 W
NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition, 97887 MiB, 300.00 W
NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887 MiB, 600.00 W
"""
RTX_PRO_GPUS = parse_query(RTX_PRO, ("name", "memory.total", "power.max_limit"))


def test_slugs_are_readable() -> None:
    assert seen_machine([GB10], **SPARK).slug == "gb10-1x-aarch64-20c-128g-8684"
    assert seen_machine([H200] * 8, **XEON).slug == "h200-8x-x86_64-16c-144g-4694"
    assert seen_machine([], **XEON).slug == "cpu-x86_64-16c-224g-308f"
    assert SIMULATED_MACHINE.slug == "simulator"


@pytest.mark.parametrize(
    ("gpus", "host"),
    [
        ([replace(GB10, driver="610.43.02", temperature_c=80, sm_clock_mhz=2418)], SPARK),
        ([replace(GB10, memory_mib=124_518, max_power_w=140, power_limit_w=100)], SPARK),
        ([replace(GB10, reasons=("idle",), utilization=0.9, power_draw_w=90)], SPARK),
        ([replace(GB10, name="GB10")], SPARK),
        ([GB10], SPARK | {"memory_kib": int(119.6 * _GIB)}),
    ],
    ids=[
        "reboot and driver update",
        "driver that shows memory and power",
        "under load",
        "name of NVML",
        "new kernel",
    ],
)
def test_the_same_machine_has_the_same_key(gpus: list[GpuState], host: dict[str, Any]) -> None:
    machine = seen_machine([GB10], **SPARK)

    assert seen_machine(gpus, **host).digest == machine.digest
    assert seen_machine(gpus, **host).slug == machine.slug


def test_a_discrete_gpu_keeps_its_key_when_its_power_limit_is_set_or_ram_is_added() -> None:
    machine = seen_machine([H200], **XEON)

    assert seen_machine([replace(H200, power_limit_w=500.0)], **XEON).digest == machine.digest
    assert seen_machine([H200], **XEON | {"memory_kib": 400 * _GIB}).digest == machine.digest


def test_every_machine_has_its_own_key() -> None:
    machines = [
        seen_machine([GB10], **SPARK),
        seen_machine([GB10], **SPARK, nodes=2),
        seen_machine([GpuState("Orin (nvgpu)")], **SPARK),
        seen_machine([GpuState("NVIDIA Thor")], **SPARK),
        seen_machine([H200], **XEON),
        seen_machine([H200, H200], **XEON),
        seen_machine([replace(H200, capability="10.0")], **XEON),
        seen_machine([replace(H200, mig_enabled=True)], **XEON, mig_profiles=("3g.71gb",)),
        seen_machine([replace(H200, mig_enabled=True)], **XEON, mig_profiles=("1g.18gb", "1g.18gb")),
        *(seen_machine([gpu], **XEON) for gpu in RTX_PRO_GPUS),
        seen_machine([replace(RTX_PRO_GPUS[0], max_power_w=300.0)], **XEON),
        seen_machine([], **XEON),
        seen_machine([], **XEON | {"cores": 32}),
        seen_machine([], **XEON | {"cpu": "AMD EPYC"}),
        seen_machine([], **XEON | {"memory_kib": 60 * _GIB}),
        declared_machine(Hardware("NVIDIA GB10", 1, 128)),
        declared_machine(Hardware("NVIDIA GB10", 2, 128)),
        declared_machine(Hardware("NVIDIA GB10")),
        SIMULATED_MACHINE,
    ]

    assert len({machine.digest for machine in machines}) == len(machines)
    assert len({machine.slug for machine in machines}) == len(machines)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Thor", "NVIDIA Thor"), ("Orin (nvgpu)", "Orin"), ("nvidia gb10", "NVIDIA GB10")],
)
def test_two_names_of_one_device_are_one_key(one: str, other: str) -> None:
    assert seen_machine([GpuState(one)], **SPARK).slug == seen_machine([GpuState(other)], **SPARK).slug


def test_a_declared_machine_says_so_and_whole_figures_are_one_with_their_floats() -> None:
    machine = declared_machine(Hardware("NVIDIA GB10", 1, 128))

    assert machine.slug == "gb10-1x-128g-declared-2c0d"
    assert declared_machine(Hardware("GB10", 1, 128.0)).digest == machine.digest


def test_slugs_are_file_safe() -> None:
    machine = seen_machine([GpuState("NVIDIA A/B: c\\d (x) " + "y" * 90)], **XEON)

    assert machine.slug == "a-b-c-d-x-" + "y" * 50 + "-x86_64-16c-224g-" + machine.digest[:4]


@pytest.mark.parametrize(
    "machine",
    [
        seen_machine([GB10], **SPARK),
        seen_machine([H200, H200, *RTX_PRO_GPUS], **XEON, nodes=2),
        seen_machine([], cpu=None, cores=None, architecture=None, memory_kib=None),
        declared_machine(Hardware("NVIDIA GB10", 2, 128)),
        SIMULATED_MACHINE,
    ],
)
def test_a_key_survives_its_file(machine: Machine) -> None:
    assert machine_from_document(machine.as_document()).digest == machine.digest


def test_a_document_counts_equal_gpus_and_leaves_out_what_is_unknown() -> None:
    assert seen_machine([H200, H200], **XEON | {"cpu": None}).as_document() == {
        "source": "seen",
        "gpus": [{"name": "H200", "count": 2, "memory_gib": 144.0, "capability": "9.0", "max_power_w": 700}],
        "cores": 16,
        "architecture": "x86_64",
    }


@pytest.mark.parametrize(
    ("gib", "installed"),
    [
        (119.6, 128),
        (121.7, 128),
        (122.8, 128),
        (62.5, 64),
        (15.4, 16),
        (7.6, 8),
        (503, 512),
        (1007, 1024),
        (128, 128),
        (0, 0),
    ],
)
def test_memory_is_rounded_up_to_what_is_installed(gib: float, installed: float) -> None:
    assert rounded_up_gib(gib) == installed


def test_cpus_have_names_on_both_architectures() -> None:
    arm = "".join(
        f"processor\t: {n}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {part}\n\n"
        for n, part in enumerate(["0xd87", "0xd85", "0xd87", "0xfff"])
    )

    assert cpu_name(arm) == "ARM 0x41 0xfff + Cortex-A725 + Cortex-X925"
    assert (
        cpu_name("model name\t: Intel(R) Xeon(R) Platinum 8480+ CPU @ 2.00GHz\n" * 2)
        == "Intel Xeon Platinum 8480+"
    )
    assert cpu_name("model name : AMD EPYC 9654 96-Core Processor\ncpu MHz : 2596.118\n") == "AMD EPYC 9654"
    assert cpu_name("") is None


def test_a_gpu_called_only_nvidia_keeps_its_name() -> None:
    assert gpu_name("NVIDIA") == "NVIDIA"
