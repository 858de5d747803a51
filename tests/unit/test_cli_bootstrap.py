from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from pytest_sparkperf.cli.bootstrap import bootstrap
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.plan import CollectedGate
from pytest_sparkperf.core.targets import Launch
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.planning import Collector


def suite(launch: Launch = "vllm", slowdown: float | None = 0.05) -> Collector:
    spec = parse_mark({"max_slowdown": slowdown})
    return Collector([CollectedGate("test_it.py::test_speed", spec, {"B": Variant("qwen36", launch)})])


class Runs:
    """Stands in for pytest; ``statuses`` are those of its runs."""

    def __init__(self, *statuses: int) -> None:
        self.asked: list[list[str]] = []
        self._statuses = list(statuses)

    def __call__(self, arguments: Sequence[str]) -> int:
        self.asked.append(list(arguments))
        return self._statuses.pop(0)


def test_each_run_records_into_one_batch(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(0, 0, 0)

    status = bootstrap(3, ["tests", "-k", "speed"], collect=lambda _: suite(), run=runs)

    assert status == 0
    assert len(runs.asked) == 3
    assert runs.asked[0] == runs.asked[1] == runs.asked[2]
    switch, record, batch, *rest = runs.asked[0]
    assert (switch, record, rest) == ("--sparkperf", "--sparkperf-record", ["tests", "-k", "speed"])
    assert re.fullmatch(r"--sparkperf-record-batch=bootstrap-\d{8}-\d{6}", batch)
    assert capsys.readouterr().out.splitlines() == [
        "run 1 of 3",
        "run 2 of 3",
        "run 3 of 3",
        (
            "3 of 3 runs ended well; they are of one day: the spread between days comes in with the runs of "
            "other days, each recorded by pytest --sparkperf --sparkperf-record"
        ),
    ]


def test_a_run_that_fails_ends_no_other_and_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    status = bootstrap(3, [], collect=lambda _: suite(), run=Runs(0, 1, 0))

    assert status == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:4] == ["run 1 of 3", "run 2 of 3", "run 2 of 3 ended with status 1", "run 3 of 3"]
    assert out[4].startswith("2 of 3 runs ended well; ")


@pytest.mark.parametrize(
    ("starts", "found", "text"),
    [
        (
            2,
            suite(),
            (
                "--starts 2 is no first set: use 3, the fewest that gates are judged by, to 10, the most "
                "that are kept"
            ),
        ),
        (
            5,
            suite(slowdown=None),
            (
                "none of these tests is judged by a baseline, so there is nothing to record; give one "
                "max_slowdown=0.05 without against="
            ),
        ),
        (
            5,
            suite("attach"),
            (
                "test_it.py::test_speed: the server of target 'qwen36' is attached to and would be the same "
                "start each time, so records would not show how starts differ; use a target that is started, "
                "such as launch: vllm, or restart the server between runs of pytest --sparkperf "
                "--sparkperf-record"
            ),
        ),
    ],
)
def test_what_makes_no_first_set_is_refused_before_anything_runs(
    starts: int, found: Collector, text: str
) -> None:
    runs = Runs()

    with pytest.raises(ConfigError) as raised:
        bootstrap(starts, [], collect=lambda _: found, run=runs)

    assert str(raised.value) == text
    assert runs.asked == []
