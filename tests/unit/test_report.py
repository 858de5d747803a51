"""Results as lines: the worst first, each with its figures, and SIMULATED before the first of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sparkperf.core.report import (
    failure_text,
    figure,
    inconclusive_text,
    server_line,
    summary_lines,
    verdict_lines,
    worst,
)
from pytest_sparkperf.core.result import Result, Verdict

PASS = Verdict("min_decode", "PASS", 123.456, 120.0, 126.0, 100.0, 97.5, "", 3)
OPEN = Verdict("max_ttft_ms", "INCONCLUSIVE", 50.0, 45.0, 55.0, 50.0, 52.0, "too wide", 12)
BROKEN = Verdict("min_prefill", "ERROR", None, None, None, 2000.0, None, "no usage\nlog:\n  | a line")
RESULT = Result(
    decode_tok_s=123.456,
    ttft_ms=50.0,
    rounds=3,
    verdicts=(PASS, OPEN),
    acceptance_rate=0.65,
    acceptance_length=2.95,
    acceptance_per_position=(0.82, 0.65, 0.48),
    wasted_tokens=1050,
    invalid={"timeout": 1},
    server={"name": "qwen36 k=3", "k": 3, "model": "m", "version": "0.32.0", "url": "http://h:1"},
)
ACCEPTED = "acceptance 65.0% (82.0%, 65.0%, 48.0% by position), length 2.95, 1,050 drafted tokens wasted"
LINES = [
    "INCONCLUSIVE max_ttft_ms=50: 50.00 ms (interval 45.00 to 55.00); too wide",
    "  a true value over 52.00 ms would have failed with 90 % probability",
    "PASS min_decode=100: 123.5 tok/s (interval 120.0 to 126.0)",
    "  a true value under 97.50 tok/s would have failed with 90 % probability",
    f"decode_tok_s 123.5 tok/s, ttft 50.00 ms; {ACCEPTED}",
    "3 rounds, 0 valid requests, not valid: 1 timeout",
    "qwen36 k=3 model m vLLM 0.32.0 at http://h:1",
]


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (123.45, "123.5"), (1.5, "1.50"), (0.65, "0.6500"), (-2, "-2.00")]
)
def test_figures_have_about_four_digits(value: float, text: str) -> None:
    assert figure(value) == text
    assert figure(value, "ms") == f"{text} ms"


def test_the_worst_verdict_decides() -> None:
    assert worst([PASS, OPEN]) == "INCONCLUSIVE"
    assert worst([PASS, BROKEN]) == "ERROR"
    assert worst([]) is None


def test_a_real_result_is_told_plainly() -> None:
    assert failure_text(RESULT) == "\n".join(LINES)
    assert inconclusive_text(RESULT) == LINES[0]
    assert summary_lines("test_it.py::test_it", RESULT) == ["test_it.py::test_it", *(f"  {x}" for x in LINES)]


def test_acceptance_stands_beside_the_speed_of_each_server() -> None:
    off = Result(decode_tok_s=80.0, server={"name": "qwen36 k=0", "k": 0})
    last = summary_lines("x", replace(RESULT, against=off))[-1]
    turned = summary_lines("x", replace(off, against=RESULT))[-1]

    assert last == "  against qwen36 k=0: decode_tok_s 80.00 tok/s"
    assert turned.endswith(f"decode_tok_s 123.5 tok/s, ttft 50.00 ms; {ACCEPTED}")


def test_every_line_of_a_simulated_result_says_so_first() -> None:
    simulated = replace(RESULT, simulated=True)

    *lines, last = failure_text(simulated).splitlines()

    assert lines == [f"SIMULATED {line}" for line in LINES]
    assert last == "SIMULATED: a figure of the embedded simulator says nothing about a real server"
    assert inconclusive_text(simulated) == f"SIMULATED {LINES[0]}"
    shown = summary_lines("test_it.py::test_it", simulated)[1:]
    assert shown == [f"  SIMULATED {line}" for line in LINES]


def test_the_summary_leaves_the_tail_of_a_log_to_the_failure_text() -> None:
    result = Result(verdicts=(BROKEN,))

    assert failure_text(result).startswith("ERROR min_prefill=2000: no usage\nlog:\n  | a line\n")
    assert summary_lines("x", result)[:3] == [
        "x",
        "  ERROR min_prefill=2000: no usage",
        "  nothing was measured",
    ]


@pytest.mark.parametrize(
    ("gate", "limit", "asked"),
    [
        ("min_decode", 10_000_000.0, "min_decode=10000000"),
        ("min_decode", 0.125, "min_decode=0.125"),
        ("max_slowdown", 0.95, "max_slowdown=0.05"),
        ("min_speedup", 1.25, "min_speedup=1.25"),
    ],
)
def test_a_limit_is_shown_as_it_was_asked_for(gate: str, limit: float, asked: str) -> None:
    verdict = Verdict(gate, "PASS", 2.0, 1.9, 2.1, limit, None)

    assert verdict_lines(Result(verdicts=(verdict,)))[0].startswith(f"PASS {asked}: 2.00 ")


def test_k_is_named_once() -> None:
    facts = {"name": "rented", "k": 0}

    assert summary_lines("x", Result(server=facts))[-1] == "  rented k=0"
    assert summary_lines("x", Result(server={**facts, "name": "rented k=0"}))[-1] == "  rented k=0"


def test_a_server_whose_time_runs_faster_says_so() -> None:
    result = Result(server={"name": "here", "k": 3, "time_scale": 20.0, "url": "http://h"}, simulated=True)

    assert server_line(result) == "here k=3 (its time runs 20 times as fast) at http://h"
