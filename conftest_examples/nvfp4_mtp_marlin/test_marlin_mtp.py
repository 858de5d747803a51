"""NVIDIA's recipe for DGX Spark: base experts on marlin, MTP head on triton, 32 users."""

from pytest_sparkperf import sparkperf

# ShareGPT's mean lengths: 263 tokens of prompt, output cut at 256.
pytestmark = sparkperf(concurrency=32, prompt_tokens=263, output_tokens=256, budget_s=1800)


@sparkperf(k=3, min_output_throughput=455, min_acceptance_length=2.8)
def test_with_mtp(sparkperf_result):
    """Published: 541 tok/s over 1,000 requests, acceptance 0.85 / 0.68 / 0.53 by position.

    TPOT is measured too: reasoning and content are both tokens here, where the published one read 0.0.
    """
    first, second, third = sparkperf_result.acceptance_per_position
    assert first > second > third
    assert sparkperf_result.tpot_ms > 0


@sparkperf(k=3, against={"k": 0}, min_speedup=1.1)
def test_mtp_pays():
    """Published: +26 %, 541.26 against 430.76 tok/s; in a burst both wait for the prompts first."""


@sparkperf(k=3, thinking=True, concurrency=8, min_decode=30)
def test_thinking_is_counted(sparkperf_result):
    """With the reasoning parser on, the first token is the first one of the reasoning."""
    assert all(request.reasoning for request in sparkperf_result.requests)
