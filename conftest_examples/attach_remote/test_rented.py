"""Two servers that run already, one without drafts and one with three."""

import pytest

from pytest_sparkperf import sparkperf


@pytest.mark.parametrize(
    "k",
    [
        pytest.param(0, marks=sparkperf(k=0, min_decode=62)),
        pytest.param(3, marks=sparkperf(k=3, min_decode=92)),
    ],
)
def test_single_stream(k, sparkperf_result):
    """Whether a server has the k that its URL stands for is checked before anything is measured."""
    assert sparkperf_result.server["k"] == k


@sparkperf(k=3, against={"k": 0}, min_speedup=1.3)
def test_mtp_pays():
    """Both are asked in turn; published for this machine: +45 % for one stream."""
