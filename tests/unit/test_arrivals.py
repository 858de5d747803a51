"""When the requests of an open loop are due."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from pytest_sparkperf.core.arrivals import arrival_times


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 4.0])
def test_the_rate_is_exact_and_the_gaps_scatter_as_their_shape_says(burstiness: float) -> None:
    times = arrival_times(4001, 20.0, burstiness, random.Random(1).gammavariate)
    gaps = [later - earlier for earlier, later in pairwise(times)]

    assert times[0] == 0
    assert times[-1] == pytest.approx(200.0)
    # The coefficient of variation of a gamma distribution is one over the root of its shape.
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(burstiness**-0.5, rel=0.06)


def test_one_request_is_due_at_once() -> None:
    assert arrival_times(1, 5.0, 1.0, random.Random(1).gammavariate) == (0.0,)


def test_a_seed_gives_the_same_schedule() -> None:
    first, again, other = (
        arrival_times(10, 5.0, 1.0, random.Random(seed).gammavariate) for seed in (1, 1, 2)
    )

    assert first == again != other
