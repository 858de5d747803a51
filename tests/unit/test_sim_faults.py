from __future__ import annotations

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.sim.faults import FAULTS, Faults, parse_faults


def test_no_faults_by_default() -> None:
    assert parse_faults([]) == Faults()


def test_faults_add_up() -> None:
    assert parse_faults(["no_usage", "error_after=7"]) == Faults(no_usage=True, error_after=7)


def test_the_table_names_each_fault_there_is() -> None:
    assert set(FAULTS) == set(Faults.__slots__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "meteor",
            (
                "--fault 'meteor': no such fault. Valid faults: die_after, error_after, truncate_after, "
                "hang_after, hang_ready, exit_at_start, no_usage, wrong_usage, ignore_sigterm, http_503, "
                "lumps."
            ),
        ),
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
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_faults([text])

    assert str(caught.value) == message
