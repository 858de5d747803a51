from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.sim.faults import FAULTS, Faults, FaultSwitches, parse_faults

VALID = f"Valid faults: {', '.join(FAULTS)}."


def test_no_faults_by_default() -> None:
    assert parse_faults([]) == Faults()


def test_faults_add_up() -> None:
    assert parse_faults(["no_usage", "error_after=7", "foreign_traffic=2.5", "engine_death_on=schema"]) == (
        Faults(no_usage=True, error_after=7, foreign_traffic=2.5, engine_death_on="schema")
    )


def test_the_table_names_each_fault_there_is() -> None:
    assert set(FAULTS) == set(Faults.__slots__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("meteor", f"--fault 'meteor': no such fault. {VALID}"),
        ("lumps=3", "--fault 'lumps=3': lumps takes no value. Write --fault lumps."),
        (
            "die_after",
            (
                "--fault 'die_after': die_after needs a whole number of at least 1. Write for example "
                "--fault die_after=5."
            ),
        ),
        (
            "error_after=0",
            (
                "--fault 'error_after=0': error_after needs a whole number of at least 1. Write for example "
                "--fault error_after=5."
            ),
        ),
        (
            "tie_at=2.5",
            (
                "--fault 'tie_at=2.5': tie_at needs a whole number of at least 1. Write for example "
                "--fault tie_at=5."
            ),
        ),
        (
            "foreign_traffic=nan",
            (
                "--fault 'foreign_traffic=nan': foreign_traffic needs a number above 0. Write for example "
                "--fault foreign_traffic=2.5."
            ),
        ),
        (
            "engine_death_on=regex",
            (
                "--fault 'engine_death_on=regex': engine_death_on needs one of required, schema. Write for "
                "example --fault engine_death_on=required."
            ),
        ),
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_faults([text])

    assert str(caught.value) == message


def test_a_fault_is_switched_on_and_off() -> None:
    switches = FaultSwitches(Faults(lumps=True))
    heard: list[Faults] = []
    switches.listen(heard.append)
    switches.switch("error_after", 5, requests_seen=0)
    switches.switch("lumps", None, requests_seen=0)

    assert heard == [Faults(lumps=True), Faults(lumps=True, error_after=5), Faults(error_after=5)]
    assert switches.page() == {"error_after": 5}
    switches.switch("error_after", False, requests_seen=0)
    assert switches.on == Faults()


def test_requests_are_counted_from_the_switch_on() -> None:
    switches = FaultSwitches(Faults(die_after=2))
    assert [switches.is_due("die_after", number) for number in (1, 2, 3)] == [False, True, False]

    switches.switch("die_after", 2, requests_seen=5)
    assert [switches.is_due("die_after", number) for number in (2, 6, 7, 8)] == [False, False, True, False]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("meteor", 1, f"'meteor' is no fault. {VALID}"),
        (None, 1, f"None is no fault. {VALID}"),
        ("lumps", 3, "lumps=3: lumps takes no value. Send null to switch it off."),
        (
            "error_after",
            True,
            "error_after=True: error_after needs a whole number of at least 1. Send null to switch it off.",
        ),
        (
            "exit_at_start",
            True,
            "exit_at_start can only be switched on at the start. Start with --fault exit_at_start.",
        ),
    ],
)
def test_refuses_to_switch(name: object, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FaultSwitches(Faults()).switch(name, value, requests_seen=0)

    assert str(caught.value) == message
