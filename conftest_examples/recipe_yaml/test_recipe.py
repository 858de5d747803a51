"""A server that a recipe describes: its k may be changed by a test, everything else is the recipe's."""

from pytest_sparkperf import sparkperf


@sparkperf(k=3, min_decode=88, prompt_tokens=2048, output_tokens=128)
def test_single_stream():
    """The recipe's own k. Its author measured 114.8 tok/s over 128 tokens (llama-benchy, pp2048 tg128)."""


@sparkperf(k=3, concurrency=4, min_output_throughput=125, prompt_tokens=2048, output_tokens=128)
def test_four_users():
    """As many as the recipe's --max-num-seqs runs at once; five would be refused without queueing=True."""


@sparkperf(k=0, min_decode=60, prompt_tokens=2048, output_tokens=128)
def test_without_drafts():
    """The same recipe with its speculative config taken away."""
