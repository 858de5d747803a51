from __future__ import annotations

import pytest

from pytest_sparkperf.core.constants import ASSUMED, FIRST_TOKEN, Constants
from pytest_sparkperf.core.metrics import METRICS


@pytest.mark.parametrize(("measured", "word"), [(False, "assumed"), (True, "measured")])
def test_constants_say_whether_they_were_measured(measured: bool, word: str) -> None:
    assert Constants(measured=measured).source == word


@pytest.mark.parametrize("metric", sorted(FIRST_TOKEN))
def test_times_to_the_first_token_have_spreads_of_their_own(metric: str) -> None:
    own = ASSUMED.of(metric)

    assert (own.round_sd, own.run_sd, own.launch_sd) == (0.06, 0.065, 0.065)
    assert own.alpha == ASSUMED.alpha


@pytest.mark.parametrize("metric", sorted(set(METRICS) - FIRST_TOKEN))
def test_every_other_metric_has_those_of_decoding(metric: str) -> None:
    assert ASSUMED.of(metric) is ASSUMED
