from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sparkperf.sim.cost import PrefillChunk, padded, step_cost_s
from pytest_sparkperf.sim.profiles import DEFAULT_PROFILE, PROFILES

GB10 = PROFILES[DEFAULT_PROFILE]
# Only memory is left: a dense model of 2 GB on 100 GB/s, 1 MB of KV per token.
PLAIN = replace(
    GB10,
    bandwidth_bytes_per_s=100e9,
    dense_bytes=2e9,
    expert_bytes=0.0,
    kv_bytes_per_token=1e6,
    kv_read_efficiency=0.5,
    step_overhead_s=0.0,
    token_s=0.0,
)


def tokens_per_step(draft_tokens: int) -> float:
    """Return 1 + the expected number of drafts accepted in a row."""
    expected, reached = 1.0, 1.0
    for likely in GB10.acceptance[:draft_tokens]:
        reached *= likely
        expected += reached
    return expected


def rate(draft_tokens: int, *, streams: int = 1, context: int = 2176) -> float:
    return streams * tokens_per_step(draft_tokens) / step_cost_s(GB10, [context] * streams, draft_tokens)


def test_a_step_reads_the_weights_once_for_all_streams() -> None:
    assert step_cost_s(PLAIN, [0], 0) == pytest.approx(0.020)
    assert step_cost_s(PLAIN, [0] * 8, 0) == pytest.approx(0.020)


def test_a_step_reads_each_streams_context() -> None:
    # 1,500 tokens of 1 MB at half of 100 GB/s.
    assert step_cost_s(PLAIN, [500, 1000], 0) == pytest.approx(0.020 + 0.030)


def test_more_tokens_touch_more_experts_but_never_more_than_all() -> None:
    sparse = replace(PLAIN, dense_bytes=0.0, expert_bytes=10e9, kv_bytes_per_token=0.0)

    assert step_cost_s(sparse, [0], 0) == pytest.approx(0.1 * 8 / 256)
    assert step_cost_s(sparse, [0] * 2, 0) == pytest.approx(0.1 * (1 - (1 - 8 / 256) ** 2))
    assert step_cost_s(sparse, [0] * 4096, 0) == pytest.approx(0.1)


def test_prefill_hides_the_reading_of_weights_or_hides_behind_it() -> None:
    compute = replace(PLAIN, prefill_token_s=1e-4, prefill_pair_s=0.0)

    assert step_cost_s(compute, [], 0, [PrefillChunk(0, 100)]) == pytest.approx(0.020)
    assert step_cost_s(compute, [], 0, [PrefillChunk(0, 1000)]) == pytest.approx(0.100)


def test_prefill_costs_more_the_deeper_it_is() -> None:
    first = step_cost_s(GB10, [], 0, [PrefillChunk(0, 8192)])
    later = step_cost_s(GB10, [], 0, [PrefillChunk(122_880, 8192)])

    assert later > 3 * first


@pytest.mark.parametrize(
    ("draft_tokens", "published"),
    # Published k sweep on one DGX Spark, vLLM 0.24, 2,048 prompt and 256 output tokens.
    [(0, 67.9), (1, 83.7), (2, 93.4), (3, 106.5), (4, 97.2)],
)
def test_default_profile_meets_the_published_k_sweep(draft_tokens: int, published: float) -> None:
    assert rate(draft_tokens) == pytest.approx(published, rel=0.08)


def test_three_drafts_are_best_on_the_default_profile() -> None:
    assert max(range(6), key=rate) == 3


@pytest.mark.parametrize(
    ("streams", "published"),
    # Published paired A/B, MTP off: output tok/s by concurrency.
    [(1, 69.3), (2, 109.2), (4, 179.0), (8, 280.1), (16, 408.8), (32, 569.0)],
)
def test_default_profile_meets_published_concurrency(streams: int, published: float) -> None:
    assert rate(0, streams=streams, context=500) == pytest.approx(published, rel=0.10)


@pytest.mark.parametrize(
    ("context", "published"),
    # Decode rate at k=3 by depth, of the same recipe as the k sweep.
    [(8_208, 100.1), (32_780, 94.4), (131_292, 75.5), (250_223, 62.9)],
)
def test_default_profile_meets_published_depth_decay(context: int, published: float) -> None:
    assert rate(3, context=context) == pytest.approx(published, rel=0.08)


@pytest.mark.parametrize(
    ("prompt_tokens", "published_s"),
    # TTFT by prompt length, of the same recipe.
    [(8_208, 1.25), (32_780, 6.1), (131_292, 46.4), (250_223, 139.7)],
)
def test_default_profile_meets_published_prefill(prompt_tokens: int, published_s: float) -> None:
    chunks = [
        PrefillChunk(start, min(8192, prompt_tokens - start)) for start in range(0, prompt_tokens, 8192)
    ]
    ttft_s = sum(step_cost_s(GB10, [], 3, [chunk]) for chunk in chunks)

    assert ttft_s == pytest.approx(published_s, rel=0.08)


@pytest.mark.parametrize(("tokens", "computed"), [(0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (20, 24)])
def test_steps_are_filled_up_to_the_sizes_that_have_graphs(tokens: int, computed: int) -> None:
    assert padded(tokens) == computed


def test_a_token_that_only_fills_up_has_a_price_of_its_own() -> None:
    filled = replace(GB10, padded_token_s=1e-3)

    # 1 + 2 drafts are computed as 4 tokens, 1 + 3 are 4 anyway.
    assert step_cost_s(filled, [0], 2) == pytest.approx(step_cost_s(GB10, [0], 2) + 1e-3)
    assert step_cost_s(filled, [0], 3) == step_cost_s(GB10, [0], 3)
