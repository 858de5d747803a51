"""The ``sparkperf`` mark of an item, merged and read; which items count as gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_sparkperf.core.dataset import names_file
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.gate import GateSpec, Workloads, merge_marks, parse_mark
from pytest_sparkperf.core.kinds import shortened
from pytest_sparkperf.core.report import worst
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.core.sweep import Cell, cell_of

MARK = "sparkperf"
MARK_LINE = (
    "sparkperf(min_decode=..., max_ttft_ms=..., k=..., target=..., max_rounds=12, ...): measure a vLLM "
    "server before the test and judge it after the test; see the README for all keywords"
)
GATE_FIXTURE = "_sparkperf_gate"
_POSITIONAL = (
    "sparkperf({}) has arguments without a keyword; name each one, for example sparkperf(min_decode=100)"
)
FIXTURES = frozenset(
    {
        GATE_FIXTURE,
        "sparkperf_ab",
        "sparkperf_async_client",
        "sparkperf_client",
        "sparkperf_measure",
        "sparkperf_result",
        "sparkperf_server",
        "sparkperf_sweep",
        "sparkperf_targets",
    }
)


@dataclass(slots=True)
class Gate:
    """What is known of one item while it runs; an item that only uses our fixtures is not ``marked``.

    ``called`` says that its body has begun, ``again`` that somebody runs the item a second time; ``cells``
    are the measurements of its body, ``tables`` lines that say what they came to.
    """

    marked: bool
    spec: GateSpec | None = None
    fault: str | None = None
    error: str | None = None
    expected: bool = False
    result: Result | None = None
    cells: list[Cell] = field(default_factory=list)
    called: bool = False
    again: bool = False
    tables: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """The outcome that decides the test: the worst verdict, or MEASURED where nothing was judged.

        SKIPPED where nothing failed, and a limit could not be judged that need not be.
        """
        if self.result is None:
            return "MEASURED"
        found = worst([verdict for verdict in self.result.verdicts if not verdict.excused])
        excused = any(verdict.excused for verdict in self.result.verdicts)
        return "SKIPPED" if excused and found in (None, "PASS") else found or "MEASURED"

    @property
    def has_run(self) -> bool:
        """Tell whether the item has measured, or may have in its body."""
        return self.called or self.result is not None or self.error is not None


GATE = pytest.StashKey[Gate]()


def has_mark(item: pytest.Item) -> bool:
    """Tell whether the item carries the mark itself, or its class or module does."""
    return item.get_closest_marker(MARK) is not None


def is_gate(item: pytest.Item) -> bool:
    """Tell whether the item measures: it is marked or its fixture closure holds one of our fixtures."""
    return has_mark(item) or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def rooted(keywords: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return keywords whose files are taken from a folder, as a test beside them names them."""
    return {
        name: str(folder / Path(value).expanduser()) if names_file(name, value) else value
        for name, value in keywords.items()
    }


def read_mark(item: pytest.Item, workloads: Workloads) -> GateSpec:
    """Merge the marks of an item, its class and its module per keyword, the closest winning.

    ``workloads`` are those of the run, by name; files are taken from the folder of the item's own file.
    Raises ConfigError with every fault of the marks, one a line.
    """
    marks = _closest_first(item)
    faults = [_POSITIONAL.format(shortened(", ".join(map(repr, mark.args)))) for mark in marks if mark.args]
    try:
        keywords = merge_marks([mark.kwargs for mark in marks])
        spec = parse_mark(rooted(keywords, item.path.parent), workloads)
    except ConfigError as error:
        raise ConfigError("\n".join([*faults, str(error)])) from None
    if faults:
        raise ConfigError("\n".join(faults))
    return spec


def _closest_first(item: pytest.Item) -> list[pytest.Mark]:
    """Return the marks of an item; those of its parameters are closer than those of its function."""
    callspec = getattr(item, "callspec", None)
    of_parameters = [mark for mark in getattr(callspec, "marks", ()) if mark.name == MARK]
    others = [mark for mark in item.iter_markers(MARK) if not any(mark is one for one in of_parameters)]
    return [*of_parameters, *others]


def test_of(item: pytest.Item) -> str:
    """Return the name of an item without its parameters: that of the sweep it is a part of."""
    name = getattr(item, "originalname", None) or item.name
    return item.nodeid.removesuffix(item.name) + name


def params_of(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters of an item by name; empty where it has none."""
    return dict(getattr(getattr(item, "callspec", None), "params", {}))


def note_cell(item: pytest.Item, keywords: Mapping[str, Any], spec: GateSpec, result: Result) -> None:
    """Note a measurement of an item's body; ``keywords`` are what it was asked for with."""
    gate = item.stash.get(GATE, None)
    if gate is not None:
        gate.cells.append(cell_of(test_of(item), {**params_of(item), **keywords}, spec, result))
