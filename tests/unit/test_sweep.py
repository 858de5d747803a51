"""One table and one chart for each test that measured more than once."""

from __future__ import annotations

from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.core.sweep import Cell, cell_of, sweep_lines


def cell(k: int, rate: float | None, *, test: str = "test_k.py::test_k", outcome: str = "PASS") -> Cell:
    verdict = Verdict("min_decode", outcome, rate, None, None, 60.0, None)  # type: ignore[arg-type]
    result = Result(decode_tok_s=rate, ttft_ms=325.5, verdicts=(verdict,), simulated=True)
    return cell_of(test, {"k": k, "shape": "2048/256"}, parse_mark({"k": k}), result)


def test_a_sweep_ends_with_its_table_and_its_chart() -> None:
    lines = list(sweep_lines([cell(0, 67.9), cell(3, 106.5), cell(4, None, outcome="INCONCLUSIVE")]))

    assert lines == [
        "test_k.py::test_k: 3 measurements",
        "  SIMULATED k  decode_tok_s  ttft_ms       verdict",
        "  SIMULATED 0         67.90    325.5          PASS",
        "  SIMULATED 3         106.5    325.5          PASS",
        "  SIMULATED 4             -    325.5  INCONCLUSIVE",
        "  SIMULATED decode_tok_s, tok/s",
        "  SIMULATED k=0  ##########################                67.90",
        "  SIMULATED k=3  ########################################  106.5",
        "  SIMULATED k=4                                            -",
    ]


def test_several_streams_are_drawn_by_their_output_and_comparisons_by_their_ratio() -> None:
    several = parse_mark({"concurrency": 8})
    result = Result(decode_tok_s=40.0, output_tok_s=300.0)

    assert cell_of("t", {"concurrency": 8}, several, result).chart == "output_tok_s"
    assert cell_of("t", {}, several, Result(ratio=1.4)).chart == "ratio"
    one, two = (cell_of("t", {"c": c}, several, Result(ratio=1.2 * c)) for c in (1, 2))
    assert list(sweep_lines([one, two]))[-3:] == [
        "  ratio, times the speed",
        "  c=1  ####################                      1.20",
        "  c=2  ########################################  2.40",
    ]


def test_a_test_that_measured_once_has_no_table() -> None:
    assert list(sweep_lines([cell(0, 67.9), cell(0, 67.9, test="other")])) == []


def test_where_nothing_was_measured_there_is_no_chart() -> None:
    lines = list(sweep_lines([cell(0, None), cell(1, None)]))

    assert lines[1:] == [
        "  SIMULATED k  ttft_ms  verdict",
        "  SIMULATED 0    325.5     PASS",
        "  SIMULATED 1    325.5     PASS",
    ]
