"""A first gate: the server must decode fast enough for one user, and for eight at once."""

from pytest_sparkperf import sparkperf


@sparkperf(min_decode=80, output_tokens=48)
def test_single_stream():
    """One request at a time, with the 3 draft tokens that sparkperf.yaml names."""


@sparkperf(min_output_throughput=150, concurrency=8, output_tokens=48)
def test_eight_users():
    """Eight requests that start together; the limit is on all of them."""


@sparkperf(min_decode=40, k=0, output_tokens=32)
def test_without_speculation(sparkperf_result):
    """A test may also look at the figures itself."""
    assert sparkperf_result.acceptance_rate is None
    assert sparkperf_result.percentile("ttft_ms", 90) < 5_000
