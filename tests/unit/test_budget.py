"""How long a measurement may take, and what is said when it takes longer."""

from __future__ import annotations

from pytest_sparkperf.core.budget import Budget


def test_a_pass_under_way_gets_the_budget_once_more_and_a_minute_at_least() -> None:
    assert Budget(600).longest_s == 1200
    assert Budget(1).longest_s == 61


def test_what_is_said() -> None:
    assert Budget(600).spent() == "the budget of 600 s was spent: raise budget_s, or measure less"
    assert Budget(1).overrun() == (
        "the budget of 1 s was spent and a pass did not end within 60 s more: raise budget_s, ask for fewer "
        "output_tokens, or see what holds the server up"
    )
