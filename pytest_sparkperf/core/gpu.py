"""GPUs as nvidia-smi describes them: its tables as values, throttle reasons by name, degraded hardware."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

# What is asked for; names as nvidia-smi takes them, a field's other name behind it in ALIASES.
QUERY_FIELDS = (
    "index",
    "name",
    "driver_version",
    "memory.total",
    "compute_cap",
    "power.max_limit",
    "power.limit",
    "power.draw",
    "temperature.gpu",
    "clocks.sm",
    "utilization.gpu",
    "clocks_event_reasons.active",
    "mig.mode.current",
)
# Drivers before 535 know the reasons by their old name; some print a clock's long name in the header.
ALIASES: Mapping[str, str] = MappingProxyType(
    {"clocks_event_reasons.active": "clocks_throttle_reasons.active", "clocks.sm": "clocks.current.sm"}
)
_CANONICAL = {alias: name for name, alias in ALIASES.items()}
_REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x001: "idle",
        0x002: "applications clocks setting",
        0x004: "software power cap",
        0x008: "hardware slowdown",
        0x010: "sync boost",
        0x020: "software thermal slowdown",
        0x040: "hardware thermal slowdown",
        0x080: "hardware power brake",
        0x100: "display clocks setting",
    }
)
# A power cap is how many GPUs run at full load; these say that something is wrong with heat or supply.
_THROTTLING = 0x008 | 0x020 | 0x040 | 0x080
_NEEDS_RESET = "gpu requires reset"
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_INVALID_FIELD = re.compile(r'Field "(?P<field>[^"]+)" is not a valid field to query')
# From driver 610 on the banner says KMD and CUDA UMD.
_DRIVER = re.compile(r"\b(?:Driver|KMD) Version: *(?P<version>\d[\d.]*)")
_CUDA = re.compile(r"\bCUDA (?:UMD )?Version: *(?P<version>\d[\d.]*)")
_MIG_DEVICE = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+\d+:", re.MULTILINE)
# A GB10 in its stuck low-power state stays at some 800 MHz under full load; a sound one is far above this.
_STUCK_MHZ = 1000.0
_BUSY = 0.9


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU at one moment; None where nvidia-smi gives no figure.

    ``utilization`` is 0 to 1, ``reasons`` what holds the clocks down now, ``throttled`` those of them that
    are no setting and no power limit.
    """

    name: str | None
    driver: str | None = None
    memory_mib: float | None = None
    capability: str | None = None
    max_power_w: float | None = None
    power_limit_w: float | None = None
    power_draw_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    utilization: float | None = None
    reasons: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()
    mig_enabled: bool = False
    needs_reset: bool = False


def parse_query(text: str, fields: Sequence[str] | None = None) -> tuple[GpuState, ...]:
    """Read the answer to ``--query-gpu``: a row per GPU, by its header or by the ``fields`` asked for.

    Rows of another width are messages of the driver, not GPUs, and are passed over.
    """
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    rows = [row for row in rows if row]
    if fields is None:
        if not rows:
            return ()
        fields, rows = [cell.partition("[")[0].strip() for cell in rows[0]], rows[1:]
    names = [_CANONICAL.get(field, field) for field in fields]
    return tuple(_state(dict(zip(names, row, strict=True))) for row in rows if len(row) == len(names))


def invalid_field(text: str) -> str | None:
    """Return the field that this driver does not know, where that is what it complains of."""
    match = _INVALID_FIELD.search(text)
    return match["field"] if match else None


def parse_banner(text: str) -> tuple[str | None, str | None]:
    """Return (driver, CUDA) versions from the table that plain ``nvidia-smi`` prints."""
    driver, cuda = _DRIVER.search(text), _CUDA.search(text)
    return driver and driver["version"], cuda and cuda["version"]


def parse_mig_profiles(text: str) -> tuple[str, ...]:
    """Return the profiles of the MIG devices that ``nvidia-smi -L`` lists, in its order."""
    return tuple(match["profile"] for match in _MIG_DEVICE.finditer(text))


def stuck_clock_mhz(samples: Sequence[GpuState]) -> float | None:
    """Return the median SM clock of busy samples where it shows a GPU stuck in a low-power state.

    None where the GPU is sound, or too few samples were busy to say. Never compared with the maximum clock,
    which a healthy GPU need not reach.
    """
    busy = [
        one.sm_clock_mhz
        for one in samples
        if one.sm_clock_mhz is not None and one.utilization is not None and one.utilization >= _BUSY
    ]
    if len(busy) < 3:
        return None
    middle = median(busy)
    return middle if middle <= _STUCK_MHZ else None


def version_key(version: str) -> tuple[int, ...]:
    """Return what driver versions sort by: their parts as numbers (580.95.05 is before 580.126.09)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _state(row: Mapping[str, str]) -> GpuState:
    mask = _mask(row.get("clocks_event_reasons.active"))
    percent = _number(row, "utilization.gpu")
    return GpuState(
        name=_text(row, "name"),
        driver=_text(row, "driver_version"),
        memory_mib=_number(row, "memory.total"),
        capability=_text(row, "compute_cap"),
        max_power_w=_number(row, "power.max_limit"),
        power_limit_w=_number(row, "power.limit"),
        power_draw_w=_number(row, "power.draw"),
        temperature_c=_number(row, "temperature.gpu"),
        sm_clock_mhz=_number(row, "clocks.sm"),
        utilization=None if percent is None else percent / 100,
        reasons=tuple(name for bit, name in _REASONS.items() if mask & bit),
        throttled=tuple(name for bit, name in _REASONS.items() if mask & bit & _THROTTLING),
        mig_enabled=_text(row, "mig.mode.current") == "Enabled",
        needs_reset=any(_NEEDS_RESET in cell.lower() for cell in row.values()),
    )


def _text(row: Mapping[str, str], field: str) -> str | None:
    """Return a cell; any text in brackets (``[N/A]``, ``[Unknown Error]``) says that there is none."""
    cell = row.get(field, "").strip()
    return None if not cell or cell.startswith("[") or cell.upper() in ("N/A", "NOT SUPPORTED") else cell


def _number(row: Mapping[str, str], field: str) -> float | None:
    match = _NUMBER.match(_text(row, field) or "")
    return float(match[0]) if match else None


def _mask(cell: str | None) -> int:
    try:
        return int((cell or "").strip(), 16)
    except ValueError:
        return 0
