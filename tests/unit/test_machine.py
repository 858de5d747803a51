from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.command import Answer, Run
from pytest_sparkperf.adapters.machine import HostReading, read_host, read_host_elsewhere
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.gpu import QUERY_FIELDS

ARM_CORE = "processor\t: {}\nCPU implementer\t: 0x41\nCPU part\t: {}\n\n"
SPARK = {
    "proc/cpuinfo": "".join(
        ARM_CORE.format(n, part) for n, part in enumerate(["0xd87"] * 10 + ["0xd85"] * 10)
    ),
    "proc/meminfo": "MemTotal:       127600000 kB\nMemFree:        100 kB\n",
    "sys/devices/system/cpu/present": "0-19\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.4 LTS"\n',
}


def never(arguments: Sequence[str], _timeout_s: float) -> Answer:
    raise AssertionError(f"{arguments} was called")


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_spark_is_read_from_its_files(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, SPARK), never, architecture="aarch64", kernel="6.17.0-1029-nvidia")

    assert host == HostReading(
        cpu="Cortex-A725 + Cortex-X925",
        cores=20,
        architecture="aarch64",
        memory_kib=127_600_000,
        os="Ubuntu 24.04.4 LTS",
        kernel="6.17.0-1029-nvidia",
        cpu_governor="performance",
        power_mode=None,
        container=False,
        jetson=None,
    )


def test_another_host_name_boot_and_serial_number_change_nothing(tmp_path: Path) -> None:
    renamed = {
        "etc/hostname": "spark-2\n",
        "etc/machine-id": "0" * 32,
        "proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
        "proc/uptime": "12.0 8.0\n",
        "sys/class/dmi/id/product_serial": "S123\n",
    }

    before = read_host(tree(tmp_path / "a", SPARK), never, architecture="aarch64", kernel="6.17")
    after = read_host(tree(tmp_path / "b", SPARK | renamed), never, architecture="aarch64", kernel="6.17")

    assert after == before
    assert not {"uuid", "gpu_uuid", "serial", "gpu_serial", "pci.bus_id"} & set(QUERY_FIELDS)


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_says_so_and_shows_the_hosts_hardware(tmp_path: Path, mark: str) -> None:
    host = read_host(tree(tmp_path, SPARK | {mark: ""}), never)

    assert (host.container, host.cores, host.memory_kib) == (True, 20, 127_600_000)


def test_a_jetson_without_nvidia_smi_names_its_gpu_and_power_mode(tmp_path: Path) -> None:
    files = {
        "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
        "proc/cpuinfo": "".join(ARM_CORE.format(n, "0xd42") for n in range(8)),
        "sys/devices/system/cpu/present": "0-7,8-11\n",
    }

    def nvpmodel(arguments: Sequence[str], _timeout_s: float) -> Answer:
        assert arguments == ("nvpmodel", "-q")
        return Answer(0, b"NV Power Mode: MODE_30W\n2\n")

    host = read_host(tree(tmp_path, files), nvpmodel)

    assert (host.jetson, host.power_mode, host.cpu) == ("Orin", "MODE_30W", "Cortex-A78AE")
    assert host.cores == 12, "a power mode switches cores off, which takes none away"


def test_a_jetson_without_nvpmodel_has_no_power_mode(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/device-tree/model": "NVIDIA Jetson Thor Developer Kit\0"})

    host = read_host(root, lambda _arguments, _timeout_s: Answer(None, problem="absent", absent=True))

    assert (host.jetson, host.power_mode) == ("Thor", None)


def test_what_is_hidden_is_none(tmp_path: Path) -> None:
    host = read_host(tmp_path, never, architecture="x86_64", kernel="6.1")

    assert host == HostReading(
        None, None, "x86_64", None, None, "6.1", None, None, container=False, jetson=None
    )


def test_cores_are_counted_in_cpuinfo_where_nothing_else_tells(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "processor : 0\nmodel name : AMD EPYC\n\nprocessor : 1\nmodel name : AMD EPYC\n"}

    host = read_host(tree(tmp_path, files | {"sys/devices/system/cpu/present": "odd"}), never)

    assert (host.cores, host.cpu) == (2, "AMD EPYC")


def test_this_machine_can_be_read() -> None:
    host = read_host()

    assert host.architecture
    assert host.kernel
    assert host.memory_kib is None or host.memory_kib > 0


def elsewhere(files: Mapping[str, str]) -> Run:
    """Return what runs commands on a machine with these files."""

    def run(arguments: Sequence[str], _timeout_s: float) -> Answer:
        if tuple(arguments) == ("uname", "-mr"):
            return Answer(0, b"6.17.0-1029-nvidia aarch64\n")
        program, path = arguments
        name = path.removeprefix("/")
        assert program in ("cat", "ls")
        return Answer(0, files[name].encode()) if name in files else Answer(1, stderr=b"No such file")

    return run


def test_a_machine_elsewhere_is_read_as_it_would_read_itself(tmp_path: Path) -> None:
    here = read_host(tree(tmp_path, SPARK), never, architecture="aarch64", kernel="6.17.0-1029-nvidia")

    assert read_host_elsewhere(elsewhere(SPARK)) == here
    assert read_host_elsewhere(elsewhere(SPARK | {".dockerenv": ""})).container


def test_a_machine_elsewhere_that_does_not_answer_is_an_error() -> None:
    def refuse(_arguments: Sequence[str], _timeout_s: float) -> Answer:
        return Answer(255, stderr=b"spark2: Permission denied (publickey).\n")

    with pytest.raises(ServerError) as raised:
        read_host_elsewhere(refuse)

    assert str(raised.value) == (
        "the machine of the server cannot be read by its target's probe: spark2: Permission denied "
        "(publickey).; see that the probe runs uname -mr there and asks for no password, such as probe: "
        "[ssh, -o, BatchMode=yes, spark2]"
    )
