from __future__ import annotations

import pytest

from pytest_sparkperf.core.gpu import (
    GpuState,
    invalid_field,
    parse_banner,
    parse_mig_profiles,
    parse_query,
    stuck_clock_mhz,
    version_key,
)

H200 = """\
name, memory.total [MiB], memory.used [MiB], temperature.gpu, power.draw [W], clocks.current.sm [MHz], \
clocks.current.memory [MHz], pstate, driver_version, compute_cap
NVIDIA H200, 143771 MiB, 0 MiB, 34, 79.11 W, 345 MHz, 3201 MHz, P0, 580.159.04, 9.0
"""
GB10 = """\
name, driver_version, memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%], \
power.draw [W], power.limit [W], temperature.gpu, clocks.sm [MHz]
NVIDIA GB10, 580.173.02, [N/A], [N/A], [N/A], 0 %, 11.42 W, [N/A], 35, 208 MHz
"""
LOW_POWER = """\
timestamp, pstate, clocks.sm [MHz], clocks.max.sm [MHz], power.draw [W], utilization.gpu [%], \
temperature.gpu, clocks_event_reasons.active
2026/08/21 10:00:00.000, P0, 799 MHz, 3003 MHz, 19.50 W, 96 %, 44, 0x0000000000000000
2026/08/21 10:00:01.000, P0, 801 MHz, 3003 MHz, 19.40 W, 96 %, 44, 0x0000000000000000
2026/08/21 10:00:02.000, P0, 798 MHz, 3003 MHz, 19.60 W, 97 %, 44, 0x0000000000000000
"""


def test_a_discrete_gpu_is_read_by_its_header() -> None:
    assert parse_query(H200) == (
        GpuState(
            name="NVIDIA H200",
            driver="580.159.04",
            memory_mib=143771,
            capability="9.0",
            power_draw_w=79.11,
            temperature_c=34,
            sm_clock_mhz=345,
        ),
    )


def test_what_unified_memory_does_not_have_is_none_and_never_0() -> None:
    (gpu,) = parse_query(GB10)

    assert (gpu.memory_mib, gpu.power_limit_w) == (None, None)
    assert (gpu.power_draw_w, gpu.temperature_c, gpu.sm_clock_mhz, gpu.utilization) == (11.42, 35, 208, 0.0)


def test_a_jetson_that_tells_nothing_is_a_gpu_all_the_same() -> None:
    fields = (
        "index",
        "name",
        "memory.total",
        "temperature.gpu",
        "power.draw",
        "clocks.sm",
        "utilization.gpu",
    )
    assert parse_query("0, Orin (nvgpu), [N/A], [N/A], [N/A], [N/A], [N/A]\n", fields) == (
        GpuState("Orin (nvgpu)"),
    )


def test_any_bracketed_text_is_none_and_a_needed_reset_is_noticed() -> None:
    fields = ("name", "temperature.gpu", "clocks.sm", "power.draw", "power.limit", "memory.total", "pstate")
    row = "NVIDIA GB10, 100, 66, 66.10, [Unknown Error], [Insufficient Permissions], [GPU requires reset]\n"

    assert parse_query(row, fields) == (
        GpuState("NVIDIA GB10", temperature_c=100, sm_clock_mhz=66, power_draw_w=66.1, needs_reset=True),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "Unable to determine the device handle for GPU0000:00:1E.0: Unknown Error\n",
        "name, pstate\n",
    ],
)
def test_a_message_of_the_driver_is_no_gpu(text: str) -> None:
    assert parse_query(text) == ()


@pytest.mark.parametrize(
    ("mask", "reasons", "throttled"),
    [
        ("0x0000000000000000", (), ()),
        ("0x0000000000000001", ("idle",), ()),
        ("0x0000000000000004", ("software power cap",), ()),
        (
            "0x0000000000000068",
            ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown"),
            ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown"),
        ),
        ("[N/A]", (), ()),
    ],
)
def test_throttle_reasons_have_names(mask: str, reasons: tuple[str, ...], throttled: tuple[str, ...]) -> None:
    (gpu,) = parse_query(f"x, {mask}\n", ("name", "clocks_throttle_reasons.active"))

    assert (gpu.reasons, gpu.throttled) == (reasons, throttled)


def test_a_gb10_stuck_at_low_power_is_noticed_whatever_its_maximum_clock() -> None:
    samples = parse_query(LOW_POWER)

    assert stuck_clock_mhz(samples) == 799
    assert stuck_clock_mhz(samples[:2]) is None, "two samples say little"
    assert stuck_clock_mhz([GpuState("x", sm_clock_mhz=1010, utilization=0.96)] * 5) is None
    assert stuck_clock_mhz([GpuState("x", sm_clock_mhz=300, utilization=0.1)] * 5) is None, (
        "idle GPUs are slow"
    )


@pytest.mark.parametrize(
    ("banner", "versions"),
    [
        (
            "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02     CUDA UMD Version: 13.3     |",
            ("610.43.02", "13.3"),
        ),
        (
            "| NVIDIA-SMI 580.159.04  Driver Version: 580.159.04  CUDA Version: 13.0     |",
            ("580.159.04", "13.0"),
        ),
        ("| Driver Version: N/A  CUDA Version: N/A |", (None, None)),
        ("", (None, None)),
    ],
)
def test_driver_and_cuda_are_read_from_either_banner(
    banner: str, versions: tuple[str | None, str | None]
) -> None:
    assert parse_banner(banner) == versions


def test_driver_versions_sort_by_their_parts() -> None:
    versions = ["418.87.01", "580.126.09", "580.95.05", "610.47", "N/A"]
    assert sorted(versions, key=version_key) == ["N/A", "418.87.01", "580.95.05", "580.126.09", "610.47"]


def test_mig_devices_and_unknown_fields_are_read_from_what_nvidia_smi_prints() -> None:
    listed = (
        "GPU 0: NVIDIA H200 (UUID: GPU-3cb2)\n"
        "  MIG 3g.71gb     Device  0: (UUID: MIG-1)\n"
        "  MIG 1g.18gb     Device  1: (UUID: MIG-2)\n"
    )

    assert parse_mig_profiles(listed) == ("3g.71gb", "1g.18gb")
    assert invalid_field('Field "compute_cap" is not a valid field to query.\n') == "compute_cap"
    assert invalid_field("NVIDIA H200") is None
