"""Facts and statistics from logs of many vLLM releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.core.serverlog import (
    LogFacts,
    SpecDecodingInterval,
    StatsLine,
    is_ready_line,
    jit_kernels,
    parse_log,
    spec_decoding_intervals,
    stats_lines,
)

DATA = Path(__file__).parent.parent / "data" / "logs"


def log(name: str) -> str:
    with (DATA / f"{name}.log").open(encoding="utf-8", newline="") as file:  # carriage returns stay
        return file.read()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "kv_two_lines",
            LogFacts(kv_cache_tokens=(612_864,), max_model_len=262_144, max_concurrency=(2.34,)),
        ),
        (
            "kv_four_engines",
            LogFacts(
                kv_cache_tokens=(981_504, 977_472, 977_408, 981_504),
                max_model_len=4096,
                max_concurrency=(239.63, 238.64, 238.63, 239.63),
            ),
        ),
        (
            "compose_prefix",
            LogFacts(
                model_load_gib=22.04,
                model_load_s=279.518204,
                kv_cache_tokens=(366_080,),
                max_model_len=262_144,
                max_concurrency=(1.4,),
            ),
        ),
        ("progress_bars", LogFacts(model_load_gib=17.02, model_load_s=19.1)),
        (
            "moe_main_and_draft",
            LogFacts(
                moe_backend="MARLIN",
                moe_quantization="NvFp4",
                draft_moe_backend="TRITON",
                draft_moe_quantization="Unquantized",
            ),
        ),
        ("moe_rejected", LogFacts()),
        (
            "ready_lines",
            LogFacts(
                vllm_version="0.6.3.post2.dev355+g9d5b4e4d", url="http://0.0.0.0:18000", startup_complete=True
            ),
        ),
        (
            "free_memory_info",
            LogFacts(device_free_gib=107.9, device_total_gib=121.69, device_wanted_gib=103.44),
        ),
        ("free_cap", LogFacts(device_free_gib=101.92, device_total_gib=121.69, device_wanted_gib=105.87)),
        ("three_boots", LogFacts(device_free_gib=111.65, device_total_gib=121.69, device_wanted_gib=111.95)),
        (
            "h200_off",
            LogFacts(
                vllm_version="0.24.0",
                k=0,
                kv_cache_tokens=(48_815_744,),
                max_model_len=4096,
                max_concurrency=(11917.91,),
                moe_backend="TRITON",
                moe_quantization="Unquantized",
                attention_backend="FLASH_ATTN",
                model_load_gib=0.01,
                model_load_s=0.327061,
                available_kv_cache_gib=26.19,
                url="http://127.0.0.1:8100",
                startup_complete=True,
            ),
        ),
        (
            "h200_k3",
            LogFacts(
                vllm_version="0.24.0",
                k=3,
                speculative_method="mtp",
                kv_cache_tokens=(853_407,),
                max_model_len=4096,
                max_concurrency=(208.35,),
                moe_backend="TRITON",
                moe_quantization="Unquantized",
                attention_backend="FLASH_ATTN",
                model_load_gib=0.01,
                model_load_s=0.357615,
                available_kv_cache_gib=1.06,
                url="http://127.0.0.1:8103",
                startup_complete=True,
            ),
        ),
        (
            "cpu_k2_stopped",
            LogFacts(
                vllm_version="0.32.0",
                k=2,
                speculative_method="mtp",
                kv_cache_tokens=(599_186,),
                max_model_len=2048,
                max_concurrency=(292.57,),
                moe_backend="CPU",
                moe_quantization="Unquantized",
                url="http://127.0.0.1:18102",
                startup_complete=True,
            ),
        ),
    ],
)
def test_facts_of_a_log_are_read_and_nothing_else(name: str, facts: LogFacts) -> None:
    assert parse_log(log(name)) == facts


def test_the_kv_cache_figure_does_not_depend_on_which_engine_speaks_first() -> None:
    lines = log("kv_four_engines").splitlines()
    facts, reversed_facts = parse_log("\n".join(lines)), parse_log("\n".join(reversed(lines)))

    assert facts == reversed_facts
    assert facts.kv_cache_tokens_min == 977_408
    assert sum(facts.kv_cache_tokens) == 3_917_888
    assert parse_log("").kv_cache_tokens_min is None


def test_version_and_k_are_read_from_the_engine_line() -> None:
    _, mtp, off = log("engine_config").splitlines()

    assert parse_log(mtp) == LogFacts(vllm_version="0.20.1", k=3, speculative_method="mtp")
    assert parse_log(off) == LogFacts(vllm_version="0.23.1rc1.dev1053+gf2317c227.d20260712", k=0)
    assert parse_log(f"{mtp}\n{off}").speculative_method is None


def test_of_two_starts_in_one_file_the_last_counts() -> None:
    facts = parse_log(log("h200_k3") + log("h200_off"))

    assert facts == parse_log(log("h200_off"))


def test_a_drafter_without_a_loading_line_is_the_second_of_its_process() -> None:
    main = "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['MARLIN', 'EMULATION']."
    facts = parse_log(
        f"(Worker_TP0 pid=1) {main}\n(Worker_TP1 pid=2) {main}\n"
        "(Worker_TP0 pid=1) Using TRITON Fp8 MoE backend\n"
    )

    assert facts == LogFacts(
        moe_backend="FLASHINFER_CUTLASS",
        moe_quantization="NvFp4",
        draft_moe_backend="TRITON",
        draft_moe_quantization="Fp8",
    )


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        (
            "Using FLASHINFER attention backend out of potential backends: ['FLASHINFER', 'TRITON_ATTN'].",
            "FLASHINFER",
        ),
        ("Using Flash Attention backend on V1 engine.", "Flash Attention"),
        ("Using backend AttentionBackendEnum.FLASH_ATTN for vit attention", None),
    ],
)
def test_the_attention_backend_is_the_one_of_the_language_model(line: str, backend: str | None) -> None:
    assert parse_log(line).attention_backend == backend


def test_of_several_workers_the_largest_load_counts() -> None:
    text = (
        "(Worker_TP0 pid=1) Model loading took 20.1 GiB and 30.5 seconds\n"
        "(Worker_TP1 pid=2) Model loading took 20.3 GiB and 29.0 seconds\n"
    )

    assert parse_log(text) == LogFacts(model_load_gib=20.3, model_load_s=30.5)


def test_ready_lines_are_known_in_every_wording_and_the_version_line_is_none() -> None:
    lines = log("ready_lines").splitlines()

    assert [at for at, line in enumerate(lines) if is_ready_line(line)] == [1, 2, 3]


def test_spec_decoding_lines_are_read_by_name_in_every_order() -> None:
    assert spec_decoding_intervals(log("spec_v0")) == [
        SpecDecodingInterval(8211, 12792, rate=0.642, k=3, cumulative=True)
    ]
    assert spec_decoding_intervals(log("spec_v1_early")) == [
        SpecDecodingInterval(0, 0, rate=None),
        SpecDecodingInterval(162, 414, rate=0.391, length=2.17, per_position=(0.551, 0.362, 0.261)),
    ]
    assert spec_decoding_intervals(log("spec_with_depth")) == [
        SpecDecodingInterval(
            226,
            280,
            rate=0.807,
            length=6.65,
            per_position=(1.0, 1.0, 0.975, 0.9, 0.75, 0.6, 0.425),
            draft_depth=7,
        )
    ]
    assert spec_decoding_intervals(log("spec_zero")) == [
        SpecDecodingInterval(0, 650, rate=0.0, length=1.0, per_position=(0.0, 0.0, 0.0, 0.0, 0.0))
    ]
    assert spec_decoding_intervals(log("h200_k3"))[0] == SpecDecodingInterval(
        2088, 3375, rate=0.619, length=2.86, per_position=(0.803, 0.627, 0.427)
    )


def test_a_spec_decoding_line_without_counts_is_no_interval() -> None:
    assert spec_decoding_intervals("SpecDecoding metrics: Mean acceptance length: 2.0") == []


def test_statistics_lines_are_read_in_every_form() -> None:
    v0 = (
        "INFO 10-16 19:05:47 metrics.py:345] Avg prompt throughput: 12.5 tokens/s, Avg "
        "generation throughput: "
        "7.0 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 12.5%, "
        "CPU KV cache usage: 0.0%."
    )

    assert stats_lines(log("stats_line_variants")) == [
        StatsLine("2 Engines Aggregated", 0.0, 176.2, 2, 0, 0.003, 0.969)
    ]
    assert stats_lines(v0) == [StatsLine("", 12.5, 7.0, 1, 3, 0.125, None)]
    assert stats_lines(log("cpu_k1"))[0] == StatsLine("Engine 000", 10.5, 45.5, 1, 0, 0.001, None)


def test_compiled_kernels_are_named_in_every_wording() -> None:
    assert jit_kernels(log("jit_then_death")) == (
        "W4A16FusedMoeKernel",
        "_zero_kv_blocks_kernel",
        "rejection_greedy_sample_kernel",
    )


def test_compiled_kernels_are_counted_from_an_offset() -> None:
    text = log("h200_k3")
    warm = text.index("_topk_topp_kernel")
    warm = text.rindex("\n", 0, warm) + 1

    assert len(jit_kernels(text)) == 11
    assert jit_kernels(text, warm) == ("_topk_topp_kernel", "expand_kernel")
    assert jit_kernels(text, len(text)) == ()
