"""What a simulated machine is: the hardware and model numbers from which every simulated speed follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """One model on one machine, as numbers of the engine's cost function (:mod:`pytest_sparkperf.sim.cost`).

    Byte figures are per engine step unless the name says otherwise. ``acceptance`` is the probability that a
    draft token is accepted given that all before it were; drafts deeper than the table repeat its last entry.
    """

    name: str
    gpu: str
    model: str
    # Memory side of a step.
    bandwidth_bytes_per_s: float
    dense_bytes: float  # read by every step: attention, shared experts, output head
    expert_bytes: float  # all routed experts of all layers
    experts: int
    experts_per_token: int
    kv_bytes_per_token: float
    kv_read_efficiency: float  # share of the bandwidth that gathering KV pages reaches
    # Costs that no byte explains.
    step_overhead_s: float
    token_s: float  # each token that goes through a decode step: sampling, linear-attention state
    padded_token_s: float  # each token that a decode step is filled up with, to a size that has kernels
    # Speculative decoding.
    draft_bytes: float  # read by every draft pass besides its experts
    draft_expert_bytes: float
    draft_kv_share: float  # KV a draft pass reads, against the model's own
    draft_overhead_s: float
    speculation_overhead_s: float  # once per step: rejection sampling, bookkeeping
    draft_routing_overlap: float  # share of a stream's draft tokens that ask for experts already read
    acceptance: tuple[float, ...]
    # Prefill: a prompt of n tokens computes in n * prefill_token_s + n^2 * prefill_pair_s.
    prefill_token_s: float
    prefill_pair_s: float
    # Limits of the server.
    kv_cache_tokens: int
    kv_cache_tokens_with_drafts: int  # what the draft model leaves of them
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    # ``acceptance`` when 1, 2, ... tokens are drafted, where it is known for each.
    acceptance_by_k: tuple[tuple[float, ...], ...] = ()
    # How much easier one text is to draft than another: sd of the logarithm of the exponent of acceptance.
    acceptance_spread: float = 0.0
    # Each pass over more than one stream: kernels for a matrix where one stream has a vector.
    batch_overhead_s: float = 0.0
    # Compile time of each kernel that a shape is the first to need.
    jit_s: float = 0.05

    @property
    def bytes_per_token(self) -> float:
        """What a step of one stream reads of the weights."""
        return self.dense_bytes + self.expert_bytes * self.experts_per_token / self.experts

    def kv_tokens(self, draft_tokens: int) -> int:
        """Return the size of the KV cache when ``draft_tokens`` are drafted."""
        return self.kv_cache_tokens_with_drafts if draft_tokens else self.kv_cache_tokens

    def accepted_given(self, draft_tokens: int) -> tuple[float, ...]:
        """Return ``acceptance`` when ``draft_tokens`` are drafted."""
        known = 1 <= draft_tokens <= len(self.acceptance_by_k)
        return self.acceptance_by_k[draft_tokens - 1] if known else self.acceptance


def conditional(accepted: Sequence[float]) -> tuple[float, ...]:
    """Return the probability of each draft token given that all before it were accepted.

    ``accepted`` are the shares of drafts accepted at each position, as vLLM reports them.
    """
    return tuple(share / before for share, before in zip(accepted, (1.0, *accepted), strict=False))
