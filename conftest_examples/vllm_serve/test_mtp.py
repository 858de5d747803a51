"""A real server with speculative decoding off and on: fast enough, and worth it.

The limits are set low, so that the same suite also runs on small machines; set them to what you need.
"""

from pytest_sparkperf import sparkperf

# A short load for every test here; without it a gate sends 1,000-token prompts and asks for 256 tokens.
pytestmark = sparkperf(prompt_tokens=64, output_tokens=64)


@sparkperf(k=0, min_decode=10, max_ttft_ms=5_000)
def test_without_mtp():
    """One stream, no draft tokens."""


@sparkperf(k=3, min_decode=10)
def test_with_three_draft_tokens(sparkperf_result):
    """One stream, three draft tokens; the server's own counters say how many were accepted."""
    assert sparkperf_result.acceptance_length > 1.5


@sparkperf(k=3, concurrency=4, min_output_throughput=20)
def test_four_users():
    """Four requests that start together."""
