from __future__ import annotations

import pytest
from scipy import stats

from pytest_sparkperf.core.student import t_quantile, t_upper, z_quantile


@pytest.mark.parametrize("df", [1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 25, 60])
@pytest.mark.parametrize("alpha", [0.5, 0.25, 0.1, 0.05, 0.01, 0.002, 0.01 / 3, 0.0005, 0.0001])
def test_quantiles_agree_with_scipy(alpha: float, df: int) -> None:
    assert t_quantile(alpha, df) == pytest.approx(float(stats.t.isf(alpha, df)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("df", [1, 2, 5, 6, 14, 15])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 3.4379, 5.0302])
def test_upper_tails_agree_with_scipy(t: float, df: int) -> None:
    assert t_upper(t, df) == pytest.approx(float(stats.t.sf(t, df)), abs=1e-12)


def test_multipliers_of_five_looks() -> None:
    """alpha / 5 at 3, 4, 6, 8 and 12 rounds, with a prior worth 3 degrees of freedom."""
    multipliers = [round(t_quantile(0.01 / 5, 3 + rounds - 1), 4) for rounds in (3, 4, 6, 8, 12)]

    assert multipliers == [5.0302, 4.5241, 3.9910, 3.7162, 3.4379]


def test_multipliers_of_a_baseline() -> None:
    """alpha at 1, 2, 3, 5 and 10 stored runs, with a prior worth 4 degrees of freedom."""
    multipliers = [round(t_quantile(0.01, 4 + runs - 1), 4) for runs in (1, 2, 3, 5, 10)]

    assert multipliers == [3.7469, 3.3649, 3.1427, 2.8965, 2.6503]


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.0005])
def test_normal_quantiles_agree_with_scipy(alpha: float) -> None:
    assert z_quantile(alpha) == pytest.approx(float(stats.norm.isf(alpha)), rel=1e-9)


@pytest.mark.parametrize(("alpha", "df"), [(0.0, 5), (0.6, 5), (0.01, 0)])
def test_a_quantile_that_does_not_exist_is_refused(alpha: float, df: int) -> None:
    with pytest.raises(ValueError) as refused:
        t_quantile(alpha, df)

    assert str(refused.value) == (
        f"alpha lies above 0 and up to 0.5 and df is at least 1, got {alpha!r} and {df!r}"
    )
