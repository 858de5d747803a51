from __future__ import annotations

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.order import ab_order, cells_for, looks_for, single_order


@pytest.mark.parametrize(("n_prompts", "cells"), [(1, 4), (2, 4), (3, 6), (4, 4), (5, 10)])
def test_every_prompt_is_sent_equally_often(n_prompts: int, cells: int) -> None:
    found = cells_for(n_prompts)

    assert len(found) == cells
    assert {found.count(prompt) for prompt in range(n_prompts)} == {cells // n_prompts}


def test_an_ab_pass_alternates_and_the_next_is_flipped() -> None:
    words = ["".join(arm for _, arm in ab_order(index, 4)) for index in (0, 1, 2)]

    assert words == ["ABBABAAB", "BAABABBA", "ABBABAAB"]
    assert [cell for cell, _ in ab_order(0, 4)] == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("index", [0, 1])
def test_linear_drift_cancels_inside_a_pass(index: int) -> None:
    sums = dict.fromkeys("AB", 0)
    for position, (_, arm) in enumerate(ab_order(index, 4)):
        sums[arm] += position

    assert sums["A"] == sums["B"]


def test_without_a_comparison_there_is_only_the_server_under_test() -> None:
    assert single_order(2) == ((0, "B"), (1, "B"))


@pytest.mark.parametrize(
    ("max_rounds", "looks"),
    [
        (3, (3,)),
        (4, (3, 4)),
        (5, (3, 4, 5)),
        (6, (3, 4, 6)),
        (7, (3, 4, 6, 7)),
        (10, (3, 4, 6, 8, 10)),
        (12, (3, 4, 6, 8, 12)),
    ],
)
def test_a_budget_is_looked_at_at_its_end_too(max_rounds: int, looks: tuple[int, ...]) -> None:
    assert looks_for(max_rounds) == looks


@pytest.mark.parametrize("max_rounds", [2, 13, 0, -3, True])
def test_a_budget_without_planned_looks_is_refused(max_rounds: int) -> None:
    with pytest.raises(ConfigError) as refused:
        looks_for(max_rounds)

    assert str(refused.value) == (
        f"max_rounds={max_rounds!r} is not a budget: use a whole number from 3 to 12; "
        "the looks of a verdict are planned for no other"
    )
