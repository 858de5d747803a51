"""vLLM's options that real targets carry and that mean nothing to a simulator: accepted, said, ignored."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

WITH_VALUE = """
attention-backend block-size chat-template chat-template-content-format compilation-config config-format
cpu-offload-gb data-parallel-size default-chat-template-kwargs distributed-executor-backend download-dir
dtype generation-config gpu-memory-utilization hf-config-path hf-overrides kv-cache-dtype
kv-cache-memory-bytes kv-transfer-config limit-mm-per-prompt linear-backend load-format
long-prefill-token-threshold mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-ssm-cache-dtype
max-cudagraph-capture-size max-log-len max-logprobs max-num-partial-prefills max-seq-len-to-capture
middleware mm-encoder-tp-mode mm-processor-cache-gb mm-processor-kwargs model-impl
model-loader-extra-config moe-backend optimization-level override-generation-config performance-mode
pipeline-parallel-size quantization reasoning-config revision runner safetensors-load-strategy
scheduling-policy stream-interval structured-outputs-config swap-space tensor-parallel-size tokenizer
tokenizer-mode tool-parser-plugin uvicorn-log-level
""".split()  # noqa: SIM905 - quoted one by one the names would fill a page
SEVERAL_VALUES = ("cudagraph-capture-sizes", "logits-processors")
TOGGLES = """
async-scheduling calculate-kv-scales disable-access-log-for-endpoints disable-custom-all-reduce
disable-fastapi-docs disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats
disable-sliding-window disable-uvicorn-access-log enable-chunked-prefill enable-expert-parallel
enable-flashinfer-autotune enable-force-include-usage enable-log-outputs enable-log-requests
enable-mfu-metrics enable-per-request-metrics enable-request-id-headers enable-server-load-tracking
enable-sleep-mode enforce-eager exclude-tools-when-tool-choice-none fully-sharded-loras
kv-sharing-fast-prefill language-model-only skip-mm-profiling skip-tokenizer-init trust-remote-code
""".split()  # noqa: SIM905 - quoted one by one the names would fill a page
# Parts of one of these may be given as --option.part.
_DOTTED = frozenset({"compilation-config", "hf-overrides", "structured-outputs-config", "kv-transfer-config"})


class _Ignore(argparse.Action):
    """Notes the option under the one name ``ignored``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's signature
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        namespace.ignored = [*namespace.ignored, option_string]


def add_ignored_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser take the options; ``ignored`` of its namespace lists those that were given."""
    parser.set_defaults(ignored=[])
    for name in WITH_VALUE:
        parser.add_argument(f"--{name}", action=_Ignore, dest="ignored", help=argparse.SUPPRESS)
    for name in SEVERAL_VALUES:
        parser.add_argument(f"--{name}", action=_Ignore, nargs="+", dest="ignored", help=argparse.SUPPRESS)
    for name in TOGGLES:
        names = (f"--{name}", f"--no-{name}")
        parser.add_argument(*names, action=_Ignore, nargs=0, dest="ignored", help=argparse.SUPPRESS)


def whole_option(name: str) -> str:
    """Return the option of which ``--option.part`` names a part, where it is an ignored one."""
    head = name.partition(".")[0]
    return head if head.removeprefix("--") in _DOTTED else name
