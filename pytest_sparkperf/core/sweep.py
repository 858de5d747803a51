"""Measurements of one test under several parameters: one table and one chart of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.design import main_metric
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.kinds import shortened
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.report import figure, worst
from pytest_sparkperf.core.result import Result

# Columns of the table, where any cell has a figure.
_COLUMNS = (
    "decode_tok_s",
    "output_tok_s",
    "prefill_tok_s",
    "ttft_ms",
    "tpot_ms",
    "acceptance_rate",
    "acceptance_length",
    "ratio",
)
_BAR = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement of a sweep, in plain values: what was varied, what was found, how it was judged.

    ``chart`` names the metric that the measurement is mainly about.
    """

    test: str
    params: Mapping[str, str]
    figures: Mapping[str, float | None]
    outcome: str
    chart: str
    simulated: bool


def cell_of(test: str, params: Mapping[str, Any], spec: GateSpec, result: Result) -> Cell:
    """Return the cell of one measurement."""
    return Cell(
        test,
        {name: shortened(str(value)) for name, value in params.items() if value is not None},
        {name: getattr(result, name) for name in _COLUMNS},
        worst(result.verdicts) or "",
        "ratio" if result.ratio is not None else main_metric(spec.load),
        result.simulated,
    )


def sweep_lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table and a chart for each test that measured more than once, in the order of the cells."""
    for test in dict.fromkeys(cell.test for cell in cells):
        own = [cell for cell in cells if cell.test == test]
        if len(own) > 1:
            word = "SIMULATED " if any(cell.simulated for cell in own) else ""
            yield f"{test}: {len(own)} measurements"
            yield from (f"  {word}{line}" for line in (*_table(own), *_chart(own)))


def _table(cells: Sequence[Cell]) -> Iterator[str]:
    names = _parameters(cells)
    columns = [name for name in _COLUMNS if any(cell.figures[name] is not None for cell in cells)]
    judged = any(cell.outcome for cell in cells)
    rows = [[*names, *columns, *(["verdict"] if judged else [])]]
    for cell in cells:
        figures = [_told(cell.figures[name]) for name in columns]
        rows.append(
            [
                *(cell.params.get(name, "-") for name in names),
                *figures,
                *([cell.outcome or "-"] if judged else []),
            ]
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _chart(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a bar per cell, all from 0 to the largest."""
    charts = {cell.chart for cell in cells}
    metric = charts.pop() if len(charts) == 1 else "output_tok_s"
    values = [cell.figures[metric] for cell in cells]
    largest = max((value for value in values if value is not None), default=0.0)
    if largest <= 0:
        return
    names = _parameters(cells)
    labels = [
        " ".join(f"{name}={cell.params[name]}" for name in names if name in cell.params) for cell in cells
    ]
    width = max(map(len, labels))
    yield f"{metric}{f', {METRICS[metric].unit}' if metric in METRICS else ', times the speed'}"
    for label, value in zip(labels, values, strict=True):
        bar = "#" * max(1, round(_BAR * value / largest)) if value is not None else ""
        yield f"{label.ljust(width)}  {bar.ljust(_BAR)}  {_told(value)}"


def _parameters(cells: Sequence[Cell]) -> list[str]:
    """Return the parameters that vary, or all where none does."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.params))
    varied = [name for name in names if len({cell.params.get(name) for cell in cells}) > 1]
    return varied or names


def _told(value: float | None) -> str:
    return "-" if value is None else figure(value)
