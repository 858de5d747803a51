"""97 tok/s alone and 322 tok/s for eight: two figures of two definitions, each with a limit of its own."""

from pytest_sparkperf import sparkperf

pytestmark = sparkperf(k=3, output_tokens=400)


@sparkperf(concurrency=1, min_output_throughput=90, min_decode=92)
def test_single_stream(sparkperf_result):
    """Published: 400 tokens in 4.11 s, so 97.4 tok/s: output tokens / wall time, TTFT included."""
    wall_s = 400 / sparkperf_result.output_tok_s
    assert wall_s * 1000 > sparkperf_result.ttft_ms + 399 * 1000 / sparkperf_result.decode_tok_s * 0.97
    # The decode rate leaves the first token's wait out, and is the higher one.
    assert sparkperf_result.decode_tok_s > sparkperf_result.output_tok_s


@sparkperf(concurrency=8, min_output_throughput=272, min_decode=38.5)
def test_eight_distinct_streams(sparkperf_result):
    """Published: ~290 tok/s with distinct prompts, each of which pays for its own prefill.

    ``output_tok_s`` divides all tokens by the whole wall time; ``decode_throughput_tok_s`` leaves out the
    wait for the first token of all, and is the higher one.
    """
    assert sparkperf_result.decode_throughput_tok_s > sparkperf_result.output_tok_s


@sparkperf(concurrency=8, prefix_cache="warm", min_decode=39.5, max_ttft_ms=600)
def test_eight_warm_streams(sparkperf_result):
    """Published: 322 tok/s together, first to last token, with every prompt in the prefix cache.

    That is ``decode_throughput_tok_s``. With TTFT out of the way the two definitions nearly agree.
    """
    assert sparkperf_result.decode_throughput_tok_s > 0.96 * 322.05
    assert sparkperf_result.output_tok_s > 0.95 * sparkperf_result.decode_throughput_tok_s
