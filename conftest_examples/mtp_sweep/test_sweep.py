"""How many draft tokens pay? No draft and k = 1, 2, 3 on the same load, each in turn with no draft."""


def test_which_k_pays(sparkperf_sweep):
    """Table and chart are in the terminal section; a test may claim what it needs of them."""
    sweep = sparkperf_sweep(k=range(4), prompt_tokens=64, output_tokens=128)

    assert sweep.peak is not None, sweep.conclusion()
    assert sweep[1].tokens_per_step < sweep[2].tokens_per_step < sweep[3].tokens_per_step
    # Pin the k that you ship: assert sweep.peak.k == 3 and sweep.proven, sweep.table()
