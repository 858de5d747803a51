"""What one engine step costs: f(batch, context, draft tokens, prefill), from a profile's numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_sparkperf.sim.profile import Profile


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Prompt tokens ``start`` to ``start + tokens`` of one request, computed within one step."""

    start: int
    tokens: int


def step_cost_s(
    profile: Profile, contexts: Sequence[int], draft_tokens: int, prefill: Sequence[PrefillChunk] = ()
) -> float:
    """Return the seconds of one step that decodes ``contexts`` (tokens in context, one entry per stream).

    The weights are read once however many streams there are, except that a mixture of experts reads more of
    them the more tokens ask; prompt tokens compute while the weights arrive, so the longer of both counts.
    """
    streams = len(contexts)
    asking = streams * (1 + (1 - profile.draft_routing_overlap) * draft_tokens)
    asking += sum(chunk.tokens for chunk in prefill)
    weights_s = _read_s(profile, profile.dense_bytes + profile.expert_bytes * _experts_share(profile, asking))
    compute_s = sum(_prefill_compute_s(profile, chunk) for chunk in prefill)
    tokens = streams * (1 + draft_tokens)
    decode_s = tokens * profile.token_s + (padded(tokens) - tokens) * profile.padded_token_s
    decode_s += _kv_read_s(profile, contexts) * (1 + profile.draft_kv_share * draft_tokens)
    batch_s = profile.batch_overhead_s * (1 + draft_tokens) if streams > 1 else 0.0
    return (
        profile.step_overhead_s
        + batch_s
        + max(weights_s, compute_s)
        + decode_s
        + _draft_s(profile, streams, draft_tokens)
    )


def padded(tokens: int) -> int:
    """Return the tokens that a decode step computes for ``tokens``.

    CUDA graphs are of some sizes only: 1, 2, 4 and the multiples of 8 (vLLM's cudagraph_capture_sizes).
    """
    return next((size for size in (0, 1, 2, 4) if tokens <= size), -(-tokens // 8) * 8)


def _experts_share(profile: Profile, tokens: float) -> float:
    """Return the expected share of all experts that ``tokens`` independent tokens ask for."""
    untouched_by_one = 1 - profile.experts_per_token / profile.experts
    return float(1 - untouched_by_one**tokens)


def _draft_s(profile: Profile, streams: int, draft_tokens: int) -> float:
    if not streams or not draft_tokens:
        return 0.0
    read = profile.draft_bytes + profile.draft_expert_bytes * _experts_share(profile, streams)
    one_pass_s = profile.draft_overhead_s + _read_s(profile, read)
    return profile.speculation_overhead_s + draft_tokens * one_pass_s


def _prefill_compute_s(profile: Profile, chunk: PrefillChunk) -> float:
    end = chunk.start + chunk.tokens
    pairs = end * end - chunk.start * chunk.start
    return chunk.tokens * profile.prefill_token_s + pairs * profile.prefill_pair_s


def _kv_read_s(profile: Profile, contexts: Sequence[int]) -> float:
    return _read_s(profile, profile.kv_bytes_per_token * sum(contexts)) / profile.kv_read_efficiency


def _read_s(profile: Profile, n_bytes: float) -> float:
    return n_bytes / profile.bandwidth_bytes_per_s
