"""What a simulated machine is: the hardware and model numbers from which every simulated speed follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


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

    def kv_tokens(self, draft_tokens: int) -> int:
        """Return the size of the KV cache when ``draft_tokens`` are drafted."""
        return self.kv_cache_tokens_with_drafts if draft_tokens else self.kv_cache_tokens


_GB10_NVFP4 = Profile(
    name="gb10-nvfp4",
    gpu="NVIDIA GB10",
    model="nvidia/Qwen3.6-35B-A3B-NVFP4",
    # "GB10 is bandwidth-bound: 273 GB/s of unified memory" (published paired A/B, NVIDIA forum).
    bandwidth_bytes_per_s=273e9,
    # Architecture of Qwen3.6-35B-A3B: 40 layers of 256 experts, 8 used per token, each 3 matrices of
    # 2048 x 512, so 32.2e9 routed parameters, at NVFP4's 4.5 bits 18.1 GB. The published weights are 22 GB in
    # all; of the rest about 2 GB (attention and output head in FP8, shared experts) is read by each step.
    dense_bytes=2.0e9,
    expert_bytes=18.1e9,
    experts=256,
    experts_per_token=8,
    # "KV runs ~10.3 KiB/token" (published long-context recipe, vLLM 0.24).
    kv_bytes_per_token=10.3 * 1024,
    # Fitted to its decode rates at k=3: 100.1, 94.4, 75.5, 62.9 tok/s at 8K, 33K, 131K, 250K of context.
    kv_read_efficiency=0.6,
    # The next values are a least-squares fit to 17 published single points: no draft 67.9 tok/s, k=1..4 83.7,
    # 93.4, 106.5, 97.2 (that recipe), and MTP off / k=3 at concurrency 1 to 32: 69.3 / 100.8, 109.2 / 146.4,
    # 179.0 / 252.2, 280.1 / 381.1, 408.8 / 547.1, 569.0 / 732.5 tok/s (the paired A/B, 71 % acceptance).
    # The fit meets each within 10 %, the single-stream ones within 4 %.
    step_overhead_s=5.3e-3,
    token_s=0.2e-3,
    draft_bytes=0.5e9,  # the output head again, FP8: 248K x 2048
    draft_expert_bytes=1.6e9,  # one layer of experts, unquantised (BF16)
    draft_kv_share=0.1,  # one layer of full attention against the model's ten
    draft_overhead_s=1.6e-3,
    speculation_overhead_s=2.8e-3,
    draft_routing_overlap=0.5,
    # Per-position acceptance 0.917, 0.784, 0.668 at k=3, mean length 3.716 at k=4 (long-context recipe).
    acceptance=(0.917, 0.855, 0.852, 0.52),
    # TTFT 1.25 s, 6.1 s, 46.4 s, 139.7 s at 8,208, 32,780, 131,292, 250,223 prompt tokens (the same recipe):
    # n / 7,860 tok/s plus a part that grows with the square.
    prefill_token_s=1.272e-4,
    prefill_pair_s=1.723e-9,
    # "The draft model costs 20 % of the KV cache: 7,121,578 -> 5,660,790 tokens", --max-num-seqs 32, 262,144
    # context (the paired A/B).
    kv_cache_tokens=7_121_578,
    kv_cache_tokens_with_drafts=5_660_790,
    max_model_len=262_144,
    max_num_seqs=32,
    max_num_batched_tokens=8192,
)

DEFAULT_PROFILE = _GB10_NVFP4.name
PROFILES: Mapping[str, Profile] = MappingProxyType({profile.name: profile for profile in (_GB10_NVFP4,)})
