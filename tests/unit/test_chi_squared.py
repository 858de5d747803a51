from __future__ import annotations

import pytest
from scipy import stats

from pytest_sparkperf.core.chi_squared import chi_squared_below, chi_squared_quantile, sd_interval


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 9, 19])
@pytest.mark.parametrize("p", [0.005, 0.025, 0.3, 0.5, 0.975, 0.995])
def test_quantiles_agree_with_scipy(p: float, df: int) -> None:
    assert chi_squared_quantile(p, df) == pytest.approx(float(stats.chi2.ppf(p, df)), rel=1e-9)


@pytest.mark.parametrize("df", [1, 2, 7, 8])
@pytest.mark.parametrize("x", [0.0, 0.5, 3.0, 20.0])
def test_probabilities_agree_with_scipy(x: float, df: int) -> None:
    assert chi_squared_below(x, df) == pytest.approx(float(stats.chi2.cdf(x, df)), abs=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0.0, 4), (1.0, 4), (0.5, 0)])
def test_what_has_no_quantile_is_refused(p: float, df: int) -> None:
    with pytest.raises(ValueError) as caught:
        chi_squared_quantile(p, df)

    assert str(caught.value) == f"p lies between 0 and 1 and df is at least 1, got {p!r} and {df!r}"


def test_five_starts_know_their_spread_within_a_factor_of_three() -> None:
    low, high = sd_interval(0.52, 4)

    assert (round(low, 2), round(high, 2)) == (0.31, 1.49)
