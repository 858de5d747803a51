"""Does MTP still pay when the batch is full? Off and on in turn, from 1 to 32 streams."""

import pytest

from pytest_sparkperf import sparkperf

pytestmark = sparkperf(
    k=3, against={"k": 0}, min_acceptance_rate=0.64, prompt_tokens=64, output_tokens=256, budget_s=1800
)


# Published gains: +45.5, +34.1, +40.9, +36.1, +33.9 and +28.7 %. Each is asked for less 8 points.
@pytest.mark.parametrize(
    "concurrency",
    [
        pytest.param(1, marks=sparkperf(concurrency=1, min_speedup=1.37)),
        pytest.param(2, marks=sparkperf(concurrency=2, min_speedup=1.26)),
        pytest.param(4, marks=sparkperf(concurrency=4, min_speedup=1.32)),
        pytest.param(8, marks=sparkperf(concurrency=8, min_speedup=1.28)),
        pytest.param(16, marks=sparkperf(concurrency=16, min_speedup=1.25)),
        pytest.param(32, marks=sparkperf(concurrency=32, min_speedup=1.20)),
    ],
)
def test_mtp_pays(concurrency, sparkperf_result):
    """The gain holds, and acceptance does not fall as the batch fills: 70.5 to 71.4 % were published."""
    assert sparkperf_result.against.acceptance_rate is None
