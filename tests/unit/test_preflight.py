"""Whether a machine is fit; the tables of GPUs are those of tests/data/machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.command import Answer
from pytest_sparkperf.adapters.preflight import Preflight, check_model
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.memory import GIB, MemInfo
from pytest_sparkperf.core.preflight import (
    GpuApp,
    MachineState,
    judge_machine,
    memory_need,
    parse_compute_apps,
    refusal,
)
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant

DATA = Path(__file__).parents[1] / "data" / "machine"
TOTAL = 121 * GIB
SPARK = MachineState(
    memory=MemInfo(TOTAL, 113 * GIB, 115 * GIB, 5 * GIB),
    gpus=(GpuState("NVIDIA GB10", utilization=0.0),),
    load_1min=0.3,
    cpus=20,
)


def vllm(**args: float) -> Variant:
    options = FrozenMap({name.replace("_", "-"): value for name, value in args.items()})
    return make_variant(Target("t", "vllm", model="m", args=options), k=0)


def texts(state: MachineState, *, need: int | None = None, own: Sequence[int] | None = ()) -> list[str]:
    return [f"{one.level} {one.what}: {one.text}" for one in judge_machine(state, need=need, own=own)]


def test_an_idle_machine_with_memory_is_fit() -> None:
    assert texts(SPARK, need=memory_need(vllm(), SPARK)) == []
    assert refusal(()) is None


def test_processes_of_others_on_the_gpu_are_named_and_never_ended() -> None:
    apps = parse_compute_apps((DATA / "D04_compute_apps.csv").read_text())

    assert [app.pid for app in apps] == [396079, 396200]
    assert texts(replace(SPARK, apps=apps)) == [
        (
            "refuse gpu_processes: other processes use the GPU: pid 396079 (VLLM::EngineCore, 101.8 GiB), "
            "pid 396200 (VLLM::Worker); end them, or measure when they are done (what earlier runs of "
            "sparkperf left, `sparkperf stop` ends)"
        )
    ]
    assert texts(replace(SPARK, apps=apps), own=[396079, 396200]) == []


def test_engines_are_known_by_what_they_call_themselves_and_never_ended(tmp_path: Path) -> None:
    rows = [line.split(None, 6) for line in (DATA / "D01_ps_orphans.txt").read_text().splitlines()[1:]]
    for pid, _, _, _, _, comm, cmdline in rows:
        folder = tmp_path / "proc" / pid
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{comm}\n")
        (folder / "cmdline").write_text(cmdline.replace(" ", "\0"))

    engines = Preflight(lambda *_: Answer(None, absent=True), tmp_path).read().engines

    assert sorted(engines, key=lambda one: one.pid) == [
        GpuApp(22010, "VLLM::EngineCor"),
        GpuApp(22101, "VLLM::Worker_TP"),
        GpuApp(22102, "VLLM::Worker_TP"),
    ]
    assert texts(replace(SPARK, engines=engines[:1])) == [
        (
            f"refuse engines: other vLLM engines run: {engines[0]}; end them, or measure when they are done "
            "(what earlier runs of sparkperf left, `sparkperf stop` ends)"
        )
    ]
    assert texts(MachineState(engines=engines[:1]))[0].startswith("warn engines: ")
    assert texts(replace(SPARK, engines=engines), own=[22010, 22101, 22102]) == []
    assert texts(replace(SPARK, engines=engines, apps=(GpuApp(1, "x"),)), own=None) == []


@pytest.mark.parametrize("text", ["", "pid, process_name, used\n", "No running processes found\n"])
def test_no_rows_are_no_processes(text: str) -> None:
    assert parse_compute_apps(text) == ()


def test_a_process_name_may_hold_a_comma_or_nothing() -> None:
    assert parse_compute_apps("1, a, b, 5 MiB\n2, , [N/A]\n") == (
        GpuApp(1, "a, b", 5 << 20),
        GpuApp(2, ""),
    )
    assert str(GpuApp(2, "")) == "pid 2 (an unnamed process)"


def test_too_little_memory_is_refused_and_page_cache_is_told_apart() -> None:
    need = memory_need(vllm(), SPARK)
    taken = replace(SPARK, memory=MemInfo(TOTAL, 1 * GIB, 30 * GIB, 29 * GIB))
    cached = replace(SPARK, memory=MemInfo(TOTAL, 20 * GIB, 115 * GIB, 95 * GIB))

    assert texts(taken, need=need) == [
        (
            "refuse memory: the server wants 111.3 GiB of memory, and of 121.0 GiB only 30.0 GiB are "
            "available; end what holds the rest, or lower gpu-memory-utilization"
        )
    ]
    assert texts(cached, need=need) == [
        (
            "warn page_cache: the server wants 111.3 GiB of memory; 115.0 GiB are available, but 95.0 GiB of "
            "them are page cache, which the driver may count as taken; if the start fails, drop it as root: "
            "sync; echo 3 > /proc/sys/vm/drop_caches"
        )
    ]


def test_what_a_server_wants_is_known_where_gpu_and_cpu_share_memory() -> None:
    assert memory_need(vllm(gpu_memory_utilization=0.5), SPARK) == TOTAL // 2
    assert memory_need(vllm(), replace(SPARK, gpus=(GpuState("H200", memory_mib=143771),))) is None
    assert memory_need(vllm(), replace(SPARK, gpus=())) is None
    assert memory_need(make_variant(Target("s", "sim")), SPARK) is None


def test_throttling_load_and_a_broken_gpu_are_refused() -> None:
    hot = GpuState("NVIDIA GB10", utilization=0.4, throttled=("hardware thermal slowdown",))

    assert texts(replace(SPARK, gpus=(hot,))) == [
        (
            "refuse throttling: NVIDIA GB10 holds its clocks down (hardware thermal slowdown); let it cool "
            "down and look at its power supply"
        ),
        (
            "refuse gpu_load: NVIDIA GB10 is 40% busy although nothing of this run uses it; end what does "
            "(see nvidia-smi)"
        ),
    ]
    assert texts(MachineState(gpu_problem="nvidia-smi does not show the GPUs: no.")) == [
        "refuse gpu: nvidia-smi does not show the GPUs: no; restart the machine, or repair its driver"
    ]


def test_beside_a_server_of_ours_load_is_expected() -> None:
    busy = replace(SPARK, gpus=(GpuState("GB10", utilization=0.9),), load_1min=30.0)

    assert texts(busy, own=[1]) == []
    assert len(texts(busy)) == 2


def test_swap_and_busy_cpus_are_warned_of() -> None:
    assert SPARK.memory is not None
    memory = replace(SPARK.memory, swap_total=16 * GIB, swap_free=13 * GIB)

    assert texts(replace(SPARK, memory=memory, load_1min=11.0)) == [
        (
            "warn swap: 3.0 GiB of swap are in use, so that parts of a server may be read from disk; swapoff "
            "-a and swapon -a empty it"
        ),
        "warn cpu_load: the CPUs are busy: load 11.0 on 20 of them; time to first token suffers from that",
    ]


def test_a_refusal_gives_all_its_reasons_and_no_warning() -> None:
    state = replace(SPARK, gpu_problem="A", apps=(GpuApp(1, "x"),), load_1min=90.0)
    text = refusal(judge_machine(state))

    assert text == (
        "this machine is not fit to be measured on: A; restart the machine, or repair its driver; also, "
        "other processes use the GPU: pid 1 (x); end them, or measure when they are done (what earlier runs "
        "of sparkperf left, `sparkperf stop` ends)."
    )


def fake_run(arguments: Sequence[str], timeout_s: float) -> Answer:
    if "--query-gpu" in str(arguments):
        return Answer(0, (DATA / "E02_query_gb10.csv").read_bytes())
    if "--query-compute-apps" in str(arguments):
        return Answer(0, (DATA / "D04_compute_apps.csv").read_bytes())
    return Answer(0)


def test_a_machine_is_read_from_nvidia_smi_and_proc(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("1.5 1.0 0.5 1/100 1\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 10 kB\nMemFree: 5 kB\nMemAvailable: 8 kB\n")

    state = Preflight(fake_run, tmp_path).read()

    assert state.is_unified
    assert (state.load_1min, state.memory) == (1.5, MemInfo(10240, 5120, 8192))
    assert len(state.apps) == 2


def test_a_machine_without_a_gpu_is_no_fault(tmp_path: Path) -> None:
    state = Preflight(lambda *_: Answer(None, absent=True, problem="no nvidia-smi"), tmp_path).read()

    assert state == MachineState(cpus=state.cpus)
    assert texts(state) == []


def test_an_unfit_machine_is_refused_before_a_start(tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        Preflight(fake_run, tmp_path).check(vllm(), own=(), progress=lambda _: None)

    assert str(caught.value).startswith(
        "this machine is not fit to be measured on: other processes use the GPU"
    )


def test_what_may_be_wrong_is_told_and_measured_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/loadavg").write_text("9999 1 1\n")
    said: list[str] = []

    Preflight(lambda *_: Answer(None, absent=True), tmp_path).check(vllm(), own=(), progress=said.append)

    assert len(said) == 1
    assert said[0].startswith("the CPUs are busy: load 9999.0 on ")


def test_a_model_that_ci_would_have_to_download_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    variant = make_variant(Target("t", "vllm", model="acme/m"), k=0)
    monkeypatch.setenv("CI", "")
    check_model(variant)
    monkeypatch.setenv("CI", "true")

    with pytest.raises(ServerError) as caught:
        check_model(variant)

    assert str(caught.value) == (
        f"model 'acme/m' is not on this machine ({str(tmp_path)!r}), and with CI set nothing is downloaded; "
        "run `hf download acme/m` on the runner beforehand."
    )
