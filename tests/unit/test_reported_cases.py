"""Every fault that people reported of servers, logs, machines and recipes has a test with its values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_sparkperf.adapters import launch
from pytest_sparkperf.adapters.command import Answer
from pytest_sparkperf.adapters.nvidia_smi import NvidiaSmi
from pytest_sparkperf.adapters.proctable import ProcessEntry, descendants
from pytest_sparkperf.adapters.recipe_file import read_recipe
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.core.gpu import GpuState, parse_banner, parse_query, stuck_clock_mhz, version_key
from pytest_sparkperf.core.hardware import seen_machine
from pytest_sparkperf.core.memory import GIB, MemorySample, is_returned
from pytest_sparkperf.core.preflight import is_engine, parse_compute_apps
from pytest_sparkperf.core.recipe import Rendered, render_recipe
from pytest_sparkperf.core.serverlog import (
    find_fatal,
    is_ready_line,
    jit_kernels,
    parse_log,
    spec_decoding_intervals,
    stats_lines,
)
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.pool import ServerPool

TESTS = Path(__file__).parents[1]
CASES = [json.loads(line) for line in (TESTS / "data/cases/servers.jsonl").read_text().splitlines()]
# What a reading of a file finds, to be compared with the values of the case.
Reading = Callable[[str], Mapping[str, Any]]


def percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100 * ratio, 1)


def kv_cache(text: str) -> Mapping[str, Any]:
    facts = parse_log(text)
    return {
        "kv_tokens": facts.kv_cache_tokens_min,
        "max_len": facts.max_model_len,
        "concurrency": facts.max_concurrency[0],
    }


def engines(text: str) -> Mapping[str, Any]:
    facts = parse_log(text)
    sizes = facts.kv_cache_tokens
    return {"kv_tokens_min": facts.kv_cache_tokens_min, "kv_tokens_sum": sum(sizes), "engines": len(sizes)}


def load(text: str) -> Mapping[str, Any]:
    facts = parse_log(text)
    found = {"load_gib": facts.model_load_gib, "load_s": facts.model_load_s}
    if facts.kv_cache_tokens:
        found |= {"kv_tokens": facts.kv_cache_tokens_min, "concurrency": facts.max_concurrency[0]}
    return found


def spec_v0(text: str) -> Mapping[str, Any]:
    [line] = spec_decoding_intervals(text)
    return {"acceptance_pct": percent(line.rate), "k": line.k}


def spec_early(text: str) -> Mapping[str, Any]:
    idle, busy = spec_decoding_intervals(text)
    return {
        "line1_acceptance": idle.rate,
        "acceptance_pct": percent(busy.rate),
        "mean_acceptance_length": busy.length,
        "per_position": list(busy.per_position),
    }


def spec_depth(text: str) -> Mapping[str, Any]:
    [line] = spec_decoding_intervals(text)
    return {
        "mean_acceptance_length": line.length,
        "acceptance_pct": percent(line.rate),
        "positions": len(line.per_position),
    }


def spec_zero(text: str) -> Mapping[str, Any]:
    [line] = spec_decoding_intervals(text)
    return {"acceptance_pct": percent(line.rate), "drafted": line.draft_tokens}


def moe(text: str) -> Mapping[str, Any]:
    facts = parse_log(text)
    return {
        "moe_backend": facts.moe_backend,
        "moe_quant": facts.moe_quantization,
        "draft_moe_backend": facts.draft_moe_backend,
    }


def ready_lines(text: str) -> Mapping[str, Any]:
    lines = text.splitlines()
    [version] = [at for at, line in enumerate(lines) if parse_log(line).vllm_version]
    return {
        "ready_line_indexes": [at for at, line in enumerate(lines) if is_ready_line(line)],
        "version_line_index": version,
    }


def free_memory(text: str) -> Mapping[str, Any]:
    facts = parse_log(text)
    return {
        "fatal": find_fatal(text) is not None,
        "free_gib": facts.device_free_gib,
        "total_gib": facts.device_total_gib,
    }


def compiled(text: str) -> Mapping[str, Any]:
    fatal = find_fatal(text)
    assert fatal is not None
    assert "RPC call to sample_tokens timed out" in fatal.line
    return {"jit_kernels": list(jit_kernels(text)), "engine_dead": fatal.kind == "engine"}


def ordinary_stop(text: str) -> Mapping[str, Any]:
    return {
        "failure_if_stop_requested": find_fatal(text, stop_requested=True) is not None,
        "failure_otherwise": find_fatal(text) is not None,
    }


def statistics(text: str) -> Mapping[str, Any]:
    [line] = stats_lines(text)
    return {
        "gen_tps": line.generation_tok_s,
        "running": line.running,
        "prefix_hit_pct": percent(line.prefix_hit_ratio),
    }


def engine_config(text: str) -> Mapping[str, Any]:
    facts = [parse_log(line) for line in text.splitlines()[1:]]
    # A mark's k=0 means none, which the case writes as null.
    return {"versions": [one.vllm_version for one in facts], "k": [one.k or None for one in facts]}


def orphans(text: str) -> Mapping[str, Any]:
    rows = [tuple(map(int, line.split()[:4])) for line in text.splitlines()[1:]]
    table = {pid: ProcessEntry(pid, ppid, pgid, sid, 1) for pid, ppid, pgid, sid in rows}
    return {"must_end": sorted(entry.pid for entry in descendants(21913, table))}


def engine_name(text: str) -> Mapping[str, Any]:
    rows = [line.split(None, 6) for line in text.splitlines()[1:]]
    return {"comm": next(row[5] for row in rows if is_engine(row[5], row[6]))}


def memory_return(text: str) -> Mapping[str, Any]:
    rows = [json.loads(line) for line in text.splitlines()]
    samples = [MemorySample(row["t"], row["MemAvailable_kB"] * 1024) for row in rows]
    before, total = samples[-1].available, int(121.69 * GIB)
    back = (n for n in range(len(samples)) if is_returned(samples[: n + 1], before, total))
    return {"ready_t": samples[next(back)].at_s}


def free_and_wanted(text: str) -> Mapping[str, Any]:
    facts, fatal = parse_log(text), find_fatal(text)
    assert fatal is not None
    assert fatal.kind == "environment"
    return {"free_gib": facts.device_free_gib, "want_gib": facts.device_wanted_gib}


def gb10(text: str) -> Mapping[str, Any]:
    [gpu] = parse_query(text)
    return {
        "mem_total": gpu.memory_mib,
        "power_draw_w": gpu.power_draw_w,
        "temp_c": gpu.temperature_c,
        "sm_clock_mhz": gpu.sm_clock_mhz,
    }


def orin(text: str) -> Mapping[str, Any]:
    fields = (
        "index",
        "name",
        "memory.total",
        "temperature.gpu",
        "power.draw",
        "clocks.sm",
        "utilization.gpu",
    )
    [gpu] = parse_query(text, fields)
    assert gpu == GpuState(gpu.name)
    return {"name": gpu.name}


def key_of(gpu: GpuState) -> str:
    return seen_machine([gpu], cpu="c", cores=20, architecture="aarch64", memory_kib=1 << 27).slug


def thor(text: str) -> Mapping[str, Any]:
    one, other = parse_query(text)
    return {"same_key": key_of(one) == key_of(other)}


def banner(text: str) -> Mapping[str, Any]:
    driver, cuda = parse_banner(text)
    return {"driver": driver, "cuda": cuda}


def rtx_pro(text: str) -> Mapping[str, Any]:
    gpus = parse_query(text, ("name", "memory.total", "power.max_limit"))
    return {"distinct_keys": len({key_of(gpu) for gpu in gpus})}


def low_power(text: str) -> Mapping[str, Any]:
    clock = stuck_clock_mhz(parse_query(text))
    return {"sm_clock_median_mhz": clock, "degraded": clock is not None}


def drivers(text: str) -> Mapping[str, Any]:
    return {"order": sorted((line for line in text.splitlines() if version_key(line)), key=version_key)}


def unknown_handle(text: str) -> Mapping[str, Any]:
    reading = NvidiaSmi(lambda *_: Answer(0, text.encode())).read()
    assert reading.problem is not None
    return {"gpu": next(iter(reading.gpus), None)}


def recipe(name: str) -> Rendered:
    return render_recipe(read_recipe(TESTS / "data/recipes" / name), {}, {})


def braces(_: str) -> Mapping[str, Any]:
    served = recipe("F02_doubled_braces_v2.yaml").served
    [config], [longest] = served.values("diffusion-config"), served.values("max-model-len")
    return {"diffusion_config": json.loads(config), "max_model_len": longest}


def speculation(_: str) -> Mapping[str, Any]:
    speculative = recipe("F03_json_in_defaults.yaml").served.speculative
    return {"k": speculative["num_speculative_tokens"], "draft_moe_backend": speculative["moe_backend"]}


def environment(_: str) -> Mapping[str, Any]:
    env = recipe("F05_env_types.yaml").env
    names = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_B12X_W4A16_FORCE_TILE_CONFIG")
    return {name: env[name] for name in names}


def names(_: str) -> Mapping[str, Any]:
    served = recipe("F06_duplicate_keys_two_names.yaml").served
    [backend] = served.values("moe-backend")
    return {"served_names": list(served.values("served-model-name")), "moe_backend": backend}


def words(_: str) -> Mapping[str, Any]:
    return {"argv": list(recipe("F08_trailing_spaces.yaml").served.words)}


def extras(_: str) -> Mapping[str, Any]:
    served = recipe("F09_version3_extras.yaml").served
    return {"port": int(served.values("port")[0]), "model": served.model}


def runtime(_: str) -> Mapping[str, Any]:
    with pytest.raises(ConfigError, match="which is not vLLM"):
        recipe("F11_not_vllm.yaml")
    return {"runtime": "other"}


def comments(_: str) -> Mapping[str, Any]:
    return {"k": recipe("F14_comments_in_command.yaml").served.speculative["num_speculative_tokens"]}


def assignments(_: str) -> Mapping[str, Any]:
    return {"env": dict(recipe("F15_env_prefix_in_command.yaml").env)}


def retried(text: str) -> Mapping[str, Any]:
    """Ask twice for a server whose start ends with this log."""
    starts = []

    def start(variant: Variant) -> Server:
        starts.append(variant)
        raise ServerError(str(find_fatal(text)))

    pool = ServerPool(start)
    for _ in range(2):
        with pytest.raises(ServerError, match="is less than desired GPU memory utilization"):
            pool.get(make_variant(Target("real", "vllm", model="m")))
    return {"retry": len(starts) > 1}


READINGS: Mapping[str, Reading] = MappingProxyType(
    {
        "C02": kv_cache,
        "C03": engines,
        "C05": spec_v0,
        "C06": spec_early,
        "C08": spec_depth,
        "C09": spec_zero,
        "C11": load,
        "C12": load,
        "C14": moe,
        "C15": lambda text: {
            "moe_backend": parse_log(text).moe_backend,
            "start_failed": find_fatal(text) is not None,
        },
        "C17": ready_lines,
        "C18": free_memory,
        "C20": compiled,
        "C21": ordinary_stop,
        "C23": statistics,
        "C24": engine_config,
        "D01": orphans,
        "D02": engine_name,
        "D04": lambda text: {"pids": [app.pid for app in parse_compute_apps(text)]},
        "D07": memory_return,
        "D08": retried,
        "D19": free_and_wanted,
        "E02": gb10,
        "E04": orin,
        "E05": thor,
        "E08": banner,
        "E11": rtx_pro,
        "E14": low_power,
        "E16": drivers,
        "E17": unknown_handle,
        "F02": braces,
        "F03": speculation,
        "F05": environment,
        "F06": names,
        "F08": words,
        "F09": extras,
        "F11": runtime,
        "F14": comments,
        "F15": assignments,
    }
)
# What is about behaviour and not about a file is shown by a test of its own.
SHOWN_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "D05": (
            "sim/test_docker.py::test_two_containers_have_a_name_and_a_nonce_each",
            "sim/test_docker.py::test_a_container_that_docker_cannot_start_is_told_at_once",
        ),
        "D10": (
            "unit/test_logfault.py::test_the_line_that_names_the_cause_is_found",
            "unit/test_launch.py::test_a_long_wait_is_passed_on_to_the_engine",
            "unit/test_reported_cases.py::test_a_start_as_long_as_the_reported_one_is_waited_for",
        ),
        "D11": (
            "sim/test_side_checks.py::test_a_server_that_falls_silent_fails_the_gate_whatever_its_health",
        ),
        "D13": (
            "unit/test_logfault.py::test_the_line_that_names_the_cause_is_found",
            "sim/test_server_start.py::test_a_port_that_already_answers",
            "sim/test_server_start.py::test_another_process_takes_the_port_while_the_server_loads",
        ),
        "D14": ("sim/test_server_attach.py::test_wants_a_key_and_none_is_named",),
        "D16": ("sim/test_command_launch.py::test_a_start_is_ended_when_memory_runs_out",),
        "D17": ("sim/test_pool.py::test_a_server_that_died_is_started_again",),
        "E07": ("unit/test_gpu.py::test_any_bracketed_text_is_none_and_a_needed_reset_is_noticed",),
        "E10": ("unit/test_nvidia_smi.py::test_gpus_that_cannot_be_read_are_none_with_the_reason",),
        "E13": ("unit/test_hardware.py::test_memory_is_rounded_up_to_what_is_installed",),
        "F12": (
            "unit/test_recipe.py::test_json_that_lost_its_quotes_on_the_way_is_told_with_its_option_and_value",
        ),
    }
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_a_reported_case_is_read_right(case: Mapping[str, Any]) -> None:
    if case["id"] in SHOWN_BY:
        shown = [test.partition("::") for test in SHOWN_BY[case["id"]]]
        texts = [(TESTS / path).read_text("utf-8") for path, _, _ in shown]
        assert all(f"def {name}(" in text for (_, _, name), text in zip(shown, texts, strict=True))
        log = Path(case["input"] or "")
        assert log.suffix != ".log" or any(f'"{log.stem}"' in text for text in texts)
        return
    with (TESTS / "data" / case["input"]).open(encoding="utf-8", newline="") as file:
        assert READINGS[case["id"]](file.read()) == case["expected"]


def test_a_start_as_long_as_the_reported_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_ENGINE_READY_TIMEOUT_S", raising=False)
    [elapsed_s] = [case["expected"]["elapsed_s"] for case in CASES if case["id"] == "D10"]
    cold = make_variant(Target("real", "vllm", model="m"))

    assert elapsed_s == 599
    assert cold.ready_timeout_s > elapsed_s
    assert int(launch.environment(cold)["VLLM_ENGINE_READY_TIMEOUT_S"]) > elapsed_s


def test_no_case_is_left_out_or_kept_beyond_its_time() -> None:
    assert [case["id"] for case in CASES] == sorted({*READINGS, *SHOWN_BY})
