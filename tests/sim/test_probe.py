"""A server elsewhere is told apart by what its machine shows there, never by this one's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from baseline_samples import SPARK

from pytest_sparkperf.adapters.command import run_through
from pytest_sparkperf.adapters.machine import read_host, read_host_elsewhere
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.experiment.known import Knowledge

CORE = "CPU implementer\\t: 0x41\\nCPU part\\t: {}\\n"
# What ssh does with its words: a shell elsewhere runs them.
SSH = f"""#!/bin/sh
case "$*" in
  "uname -mr") echo 6.17.0-1029-nvidia aarch64 ;;
  "cat /proc/cpuinfo") printf '{CORE.format("0xd87")}{CORE.format("0xd85")}' ;;
  "cat /sys/devices/system/cpu/present") echo 0-19 ;;
  "cat /proc/meminfo") echo "MemTotal:       127600000 kB" ;;
  nvidia-smi\\ --query-gpu=*) echo "name, compute_cap, temperature.gpu
NVIDIA GB10, 12.1, 61" ;;
  *) exit 1 ;;
esac
"""


def test_a_probe_reads_the_machine_of_the_server(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.replace("\\\\", "\\"))
    ssh.chmod(0o755)
    variant = Variant("rented", "attach", url="http://10.0.0.5:8000", probe=(str(ssh),))
    server = Server("http://10.0.0.5:8000", "m", 0, {})

    known = Knowledge(tmp_path).of(variant, server, "0123456789abcdef")

    assert known.machine == SPARK
    assert known.surroundings.kernel == "6.17.0-1029-nvidia"
    assert known.thermal.mode == "soak", "its thermometer can be read"
    assert [gpu.temperature_c for gpu in known.glance()] == [61]


def test_this_machine_reads_alike_through_a_command() -> None:
    assert replace(read_host_elsewhere(run_through(("env",))), cpu_governor=None) == replace(
        read_host(), cpu_governor=None
    )
