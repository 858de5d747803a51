from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from baseline_samples import EMPTY_FILE, WORK, file_with, record_at

from pytest_sparkperf.core.baseline import Figure, append_record
from pytest_sparkperf.core.baseline_report import compare_lines, diff_lines, list_lines, show_lines
from pytest_sparkperf.core.hardware import SIMULATED_MACHINE
from pytest_sparkperf.core.imports import read_results

DATA = Path(__file__).parents[1] / "data" / "baselines"
TWO = file_with(record_at(1, 104.6), record_at(2, 104.0, commit="3f2a91c07b6d4e58"))


def test_a_list_has_a_line_per_series() -> None:
    file = append_record(TWO, EMPTY_FILE, replace(WORK, k=0, speculator=None), record_at(1, 70.0))

    assert list_lines(file) == [
        "tests/test_speed.py::test_decode[k3]",
        (
            "  acme/m-35b k=0, workload 0123456789abcdef: 1 record, newest 2026-11-01T10:00:00Z; "
            "decode_tok_s 70.00 tok/s"
        ),
        (
            "  acme/m-35b k=3 mtp, workload 0123456789abcdef: 2 records, newest 2026-11-02T10:00:00Z; "
            "decode_tok_s 104.0 tok/s"
        ),
    ]


def test_a_simulated_baseline_is_listed_as_such() -> None:
    assert list_lines(replace(EMPTY_FILE, machine=SIMULATED_MACHINE)) == [
        "tests/test_speed.py::test_decode[k3] [SIMULATED]"
    ]


def test_a_file_is_shown_in_full() -> None:
    facts = {"vllm": "0.26.1", "arguments": {"moe-backend": "marlin"}}
    file = append_record(TWO, EMPTY_FILE, WORK, record_at(3, 105.2, facts=facts))

    assert show_lines(file) == [
        "tests/test_speed.py::test_decode[k3] on gb10-1x-aarch64-20c-128g-8684",
        "",
        "acme/m-35b k=3 mtp, workload 0123456789abcdef",
        "  2026-11-01T10:00:00Z, decode_tok_s 104.6 tok/s, 12 rounds, 61 C, anchor",
        "  2026-11-02T10:00:00Z, decode_tok_s 104.0 tok/s, 12 rounds, 61 C, commit 3f2a91c07b, anchor",
        "  2026-11-03T10:00:00Z, decode_tok_s 105.2 tok/s, 12 rounds, 61 C, anchor",
        "  smallest margin of decode_tok_s: max_slowdown=0.048",
        "  facts of the newest record:",
        "    vllm: 0.26.1",
        "    arguments.moe-backend: marlin",
    ]


def test_a_difference_names_records_figures_and_facts() -> None:
    after = append_record(TWO, EMPTY_FILE, WORK, record_at(3, 90.0, facts={"vllm": "0.26.1"}))

    assert diff_lines(TWO, after) == [
        "tests/test_speed.py::test_decode[k3] on gb10-1x-aarch64-20c-128g-8684",
        "  acme/m-35b k=3 mtp, workload 0123456789abcdef",
        "    + 2026-11-03T10:00:00Z, decode_tok_s 90.00 tok/s, 12 rounds, 61 C, anchor",
        "    mean speed by decode_tok_s: -4.9%",
        "    vLLM 0.24.0 -> 0.26.1",
    ]
    assert diff_lines(TWO, TWO) == []
    assert diff_lines(None, None) == []


def test_a_record_that_was_edited_or_removed_shows() -> None:
    first, second = TWO.series[0].records
    edited = replace(
        TWO,
        series=(replace(TWO.series[0], records=(replace(first, figures={"decode_tok_s": Figure(52.3)}),)),),
    )

    assert diff_lines(TWO, edited)[2:] == [
        "    - 2026-11-02T10:00:00Z, decode_tok_s 104.0 tok/s, 12 rounds, 61 C, commit 3f2a91c07b, anchor",
        (
            "    ~ 2026-11-01T10:00:00Z, decode_tok_s 104.6 tok/s, 12 rounds, 61 C, anchor -> "
            "2026-11-01T10:00:00Z, decode_tok_s 52.30 tok/s, 12 rounds, 61 C, anchor"
        ),
        "    mean speed by decode_tok_s: -69.0%",
    ]
    assert second.commit is not None


def test_a_new_file_and_a_removed_one_show_all_their_records() -> None:
    one = file_with(record_at(1, 104.6))

    assert (
        diff_lines(None, one)[-1]
        == "    + 2026-11-01T10:00:00Z, decode_tok_s 104.6 tok/s, 12 rounds, 61 C, anchor"
    )
    assert (
        diff_lines(one, None)[-1]
        == "    - 2026-11-01T10:00:00Z, decode_tok_s 104.6 tok/s, 12 rounds, 61 C, anchor"
    )


def test_two_results_are_put_beside_each_other_without_a_verdict() -> None:
    off, k3 = (
        read_results((DATA / name).read_text(), name)
        for name in ("vllm_bench_off.json", "vllm_bench_k3.json")
    )

    lines, alike = compare_lines(off, k3)

    assert lines == [
        "64 prompts of about 214 tokens, 256 out, concurrency 8, rate inf, openai-chat",
        "  not the same work: k unknown in A, 3 in B",
        "  decode_tok_s: 406.8 -> 264.6 tok/s (-35.0%, worse)",
        "  output_tok_s: 1,306 -> 995.9 tok/s (-23.8%, worse)",
        "  input_tok_s: 1,093 -> 833.2 tok/s (-23.8%, worse)",
        "  requests_per_s: 5.10 -> 3.89 req/s (-23.8%, worse)",
        "  ttft_ms: 940.2 -> 1,041 ms (+10.7%, worse)",
        "  tpot_ms: 2.46 -> 3.78 ms (+53.7%, worse)",
        "  itl_ms: not comparable where k differs",
        "  acceptance_rate: only in B",
        "  acceptance_length: only in B",
        "one run each: no interval, so no verdict; a gate needs rounds or records (max_slowdown, against)",
    ]
    assert alike is False


def test_results_of_the_same_work_say_better_or_the_same() -> None:
    text = (DATA / "vllm_bench_k3.json").read_text()
    faster = json.dumps(json.loads(text) | {"output_throughput": 1100.0, "mean_ttft_ms": 900.0})

    lines, alike = compare_lines(read_results(text, "a"), read_results(faster, "b"))

    assert alike is True
    assert "  output_tok_s: 995.9 -> 1,100 tok/s (+10.5%, better)" in lines
    assert "  ttft_ms: 1,041 -> 900.0 ms (-13.5%, better)" in lines
    assert "  tpot_ms: 3.78 -> 3.78 ms (+0.0%, the same)" in lines


def test_files_with_different_numbers_of_results_say_so() -> None:
    text = (DATA / "vllm_bench_k3.json").read_text()
    one = read_results(text, "a")

    lines, alike = compare_lines(one, [*one, *one])

    assert lines[0] == "A holds 1 results, B 2: only the first 1 are compared"
    assert alike is False
