from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sparkperf.core.baseline import Work
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.imports import Imported, read_results

DATA = Path(__file__).parents[1] / "data" / "baselines"


def text_of(name: str, **changes: Any) -> str:
    return json.dumps(json.loads((DATA / name).read_text()) | changes)


def figures(imported: Imported) -> dict[str, float]:
    return {name: figure.value for name, figure in imported.record.figures.items()}


def test_a_result_of_vllm_bench_serve_is_read_with_its_own_definitions() -> None:
    (found,) = read_results(text_of("vllm_bench_k3.json"), "a.json")

    label = "64 prompts of about 214 tokens, 256 out, concurrency 8, rate inf, openai-chat"
    assert found.work == Work("tiny", 3, None, label, "n_minus_1", "vllm bench serve")
    assert figures(found) == {
        "output_tok_s": 995.914,
        "requests_per_s": 3.89029,
        "ttft_ms": 1040.78,
        "tpot_ms": 3.77882,
        "itl_ms": 8.57087,
        "acceptance_rate": 0.429716,
        "acceptance_length": 2.28915,
        "decode_tok_s": 264.633,
        "input_tok_s": 833.19,
    }
    assert (found.record.recorded_at, found.record.rounds) == ("2026-11-30T16:06:08Z", 1)


def test_results_appended_line_by_line_are_all_read() -> None:
    text = text_of("vllm_bench_off.json") + "\n" + text_of("vllm_bench_k3.json") + "\n"

    assert [found.work.k for found in read_results(text, "a.json")] == [None, 3]


def test_a_model_in_a_home_folder_does_not_name_its_owner() -> None:
    (found,) = read_results(text_of("vllm_bench_off.json", model_id="/home/alice/models/q"), "a.json")

    assert found.work.model == "~/models/q"


def test_a_result_of_llama_benchy_is_read_without_its_context_prefill() -> None:
    alone, four = read_results(text_of("llama_benchy.json"), "b.json")

    assert alone.work == Work(
        "acme/m-35b",
        None,
        None,
        "pp2048 tg128 d0, concurrency 1, latency mode api",
        "minus_first_event",
        "llama-benchy",
    )
    assert figures(alone) == {
        "decode_tok_s": 104.6,
        "decode_throughput_tok_s": 104.6,
        "prefill_tok_s": 5300,
        "ttft_ms": 391,
    }
    assert alone.record.figures["decode_tok_s"].sd == 0.00382
    assert (alone.record.rounds, alone.record.recorded_at) == (3, "2026-11-30T10:00:00Z")
    assert four.label == "pp2048 tg128 d4096, concurrency 4, latency mode api"
    assert figures(four) == {
        "decode_tok_s": 63,
        "decode_throughput_tok_s": 240,
        "prefill_tok_s": 1300,
        "ttft_ms": 1600,
    }
    assert four.record.figures["ttft_ms"].sd is None


def test_a_result_of_pytest_benchmark_gives_our_metrics_or_the_time_of_the_call() -> None:
    ours, plain = read_results(text_of("pytest_benchmark.json"), "c.json")

    assert ours.work == Work("acme/m-35b", 3, None, "test_b.py::test_sum", None, "pytest-benchmark")
    assert figures(ours) == {"decode_tok_s": 104.567}
    assert (ours.record.commit, ours.record.recorded_at) == ("3f2a91c07b6d4e58", "2026-11-30T10:05:00Z")
    assert figures(plain) == {"e2el_ms": 12.5}
    assert plain.work.model == "unknown"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "{",
            (
                "x.json: is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
                "(char 1); give the file as the tool wrote it"
            ),
        ),
        (
            "",
            (
                "x.json: is not JSON: Expecting value: line 1 column 1 (char 0); give the file as the tool "
                "wrote it"
            ),
        ),
        ("[1]", "x.json: is not a JSON object; give the file as the tool wrote it"),
        ("[" * 200_000, "x.json: is nested too deeply; give the file as the tool wrote it"),
        (
            '{"a": 1, "b": 2}',
            (
                "x.json: is no result of vllm bench serve (--save-result), llama-benchy (--format json) or "
                "pytest-benchmark (--benchmark-json); its keys are a, b"
            ),
        ),
        (
            "{}",
            (
                "x.json: is no result of vllm bench serve (--save-result), llama-benchy (--format json) or "
                "pytest-benchmark (--benchmark-json); its keys are none"
            ),
        ),
        (
            '{"latency_mode": "api", "benchmarks": [], "model": "m", "timestamp": "2026-11-30 10:00:00Z"}',
            "x.json: holds no result that could be used; give a file with at least one finished run",
        ),
        (
            text_of("vllm_bench_off.json", failed=2),
            (
                "x.json: looks like a result of another tool and cannot be read: ValueError at completed "
                "64, failed 2: a run with failed requests is no baseline; give the file as the tool wrote it"
            ),
        ),
        (
            text_of("vllm_bench_off.json", completed="many"),
            (
                "x.json: looks like a result of another tool and cannot be read: TypeError at unsupported "
                "operand type(s) for /: 'int' and 'str'; give the file as the tool wrote it"
            ),
        ),
        (
            text_of("pytest_benchmark.json", benchmarks=[{"fullname": "t", "stats": {"mean": 1e400}}]),
            (
                "x.json: looks like a result of another tool and cannot be read: KeyError at 'stddev'; give "
                "the file as the tool wrote it"
            ),
        ),
    ],
    ids=["broken", "empty", "list", "deep", "foreign", "no keys", "no runs", "failed", "types", "no stats"],
)
def test_what_cannot_be_read_is_said(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_results(text, "x.json")

    assert str(raised.value) == error
