"""The simulated machines there are: stated hardware numbers, the rest fitted to published measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from pytest_sparkperf.sim.profile import Profile, conditional

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
    padded_token_s=0.0,  # no load of these 17 has a step that is filled up by more than a token or two
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

# Each of the following is fitted to the points of pytest_sparkperf.sim.published that name it, by least
# squares over rehearsed runs (benchmarks/fit_profiles.py); what is not named below is as above.
_GB10_FAST = replace(
    _GB10_NVFP4,
    name="gb10-fast",
    model="unsloth/Qwen3.6-35B-A3B-NVFP4-Fast",
    step_overhead_s=5.18e-3,
    token_s=0.0,
    padded_token_s=0.892e-3,
    draft_overhead_s=2.12e-3,
    speculation_overhead_s=4.55e-3,
    draft_routing_overlap=0.99,
    kv_read_efficiency=0.79,
    draft_kv_share=0.245,
    prefill_token_s=1.31e-4,
    prefill_pair_s=1.69e-9,
    # Per position 0.917, 0.784, 0.668 at k=3; 93.2 %, 86.3 %, 79.0 %, 67.9 % over all at k=1 to 4: drafts at
    # a deeper k are a little worse at every position. At k=4 "the fourth position is accepted 49 % of the
    # time".
    acceptance_by_k=(
        conditional((0.932,)),
        conditional((0.930, 0.796)),
        conditional((0.917, 0.784, 0.668)),
        conditional((0.907, 0.755, 0.565, 0.489)),
    ),
    jit_s=0.34,  # "our first k=2 pass measured 76.3 tok/s", and 91.2 once warm: two kernels of a decode step
    kv_cache_tokens=343_699,  # pinned to 4 GiB
    kv_cache_tokens_with_drafts=343_699,
    max_num_seqs=4,
)
_GB10_PAIRED = replace(
    _GB10_NVFP4,
    name="gb10-paired",
    expert_bytes=12.0e9,
    step_overhead_s=5.44e-3,
    batch_overhead_s=2.02e-3,
    token_s=0.407e-3,
    draft_overhead_s=1.41e-3,
    speculation_overhead_s=4.01e-3,
    draft_routing_overlap=0.955,
    acceptance=(0.8485, 0.8471, 0.8105),
)
# FP8 has 8 bits a weight where NVFP4 has 4.5.
_GB10_FP8 = replace(
    _GB10_NVFP4,
    name="gb10-fp8",
    model="Qwen/Qwen3.6-35B-A3B-FP8",
    dense_bytes=2.3e9,
    expert_bytes=32.2e9,
    token_s=0.582e-3,
    draft_routing_overlap=0.0,
    acceptance=(0.84, 0.786, 0.773),
    max_model_len=65_536,
)
_GB10_MARLIN = replace(
    _GB10_NVFP4,
    name="gb10-marlin",
    token_s=0.444e-3,
    draft_overhead_s=7.01e-3,  # of 32 streams on the triton backend, the only load there is a figure of
    draft_routing_overlap=0.0,
    acceptance=(0.85, 0.8, 0.779),
    max_model_len=65_536,
)
_GB10_RECIPE = replace(
    _GB10_NVFP4, name="gb10-recipe", step_overhead_s=5.74e-3, token_s=0.613e-3, max_num_seqs=8
)
_GB10_REPORT = replace(
    _GB10_NVFP4,
    name="gb10-report",
    token_s=0.112e-3,
    draft_routing_overlap=0.545,
    prefill_token_s=1.27e-4,
    acceptance=(0.8485, 0.8471, 0.8105),
    acceptance_spread=0.395,
    jit_s=1.37,
    max_model_len=65_536,
    max_num_seqs=4,
)
# "Jetson AGX Thor: 273 GB/s" (NVIDIA's data sheet).
_THOR_REPORT = replace(
    _GB10_REPORT,
    name="thor-report",
    gpu="NVIDIA Thor",
    step_overhead_s=4.71e-3,
    token_s=0.419e-3,
    draft_routing_overlap=0.302,
    prefill_token_s=1.52e-4,
    acceptance=(0.7115, 0.82, 0.7352),
    acceptance_spread=0.0869,
    jit_s=6.33,
)
# "RTX PRO 6000 Blackwell: 1,792 GB/s" (NVIDIA's data sheet). Prefill scales with it as far as is known.
_RTX_PRO_6000_REPORT = replace(
    _GB10_REPORT,
    name="rtx-pro-6000-report",
    gpu="NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    bandwidth_bytes_per_s=1792e9,
    step_overhead_s=3.61e-3,
    token_s=0.0753e-3,
    draft_overhead_s=0.5e-3,
    speculation_overhead_s=1.0e-3,
    draft_routing_overlap=0.359,
    prefill_token_s=1.0e-5,
    prefill_pair_s=4e-10,
    acceptance=(0.7709, 0.7537, 0.7212),
    acceptance_spread=0.33,
    jit_s=4.69,
)

DEFAULT_PROFILE = _GB10_NVFP4.name
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            _GB10_NVFP4,
            _GB10_FAST,
            _GB10_PAIRED,
            _GB10_FP8,
            _GB10_MARLIN,
            _GB10_RECIPE,
            _GB10_REPORT,
            _THOR_REPORT,
            _RTX_PRO_6000_REPORT,
        )
    }
)
