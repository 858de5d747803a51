"""Real vLLM servers of the tiny model for the live tests: with which options, and a few at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from pytest_sparkperf.adapters.config_file import read_config
from pytest_sparkperf.adapters.server import Server, start_server
from pytest_sparkperf.core.variant import make_variant

HERE = Path(__file__).parent
MODEL = HERE / "model"
SERVED_NAME = "tiny"
MAX_MODEL_LEN = 4096
MAX_NUM_SEQS = 4
# Each holds 2.5 GB.
MAX_SERVERS = 2
_READY_TIMEOUT_S = 600

# Why each of them is needed on a CPU: README.md beside this file.
ARGS: Mapping[str, Any] = MappingProxyType(
    {
        "served-model-name": SERVED_NAME,
        "max-model-len": MAX_MODEL_LEN,
        "max-num-seqs": MAX_NUM_SEQS,
        "max-num-batched-tokens": MAX_MODEL_LEN * MAX_NUM_SEQS,
        "enforce-eager": True,
        "enable-prefix-caching": False,
        "distributed-executor-backend": "uni",
        "reasoning-parser": "qwen3",
        "enable-auto-tool-choice": True,
        "tool-call-parser": "qwen3_coder",
    }
)
ENV: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_LOG_STATS_INTERVAL": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
)


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A running server: its root, number of draft tokens, log and main process."""

    url: str
    k: int
    log_path: Path
    pid: int


def write_config(path: Path, executable: str) -> None:
    """Write a sparkperf.yaml that starts the tiny model on this vLLM."""
    target = {
        "launch": "vllm",
        "executable": executable,
        "model": str(MODEL),
        "args": dict(ARGS),
        "env": dict(ENV),
        "ready_timeout_s": _READY_TIMEOUT_S,
    }
    document = {"version": 1, "default_target": SERVED_NAME, "targets": {SERVED_NAME: target}}
    path.write_text(yaml.safe_dump(document, sort_keys=False))


class LiveServers:
    """One server per k, started when first asked for; the one unused longest makes room for another."""

    def __init__(self, config_path: Path, log_dir: Path) -> None:
        self._target = read_config(config_path).targets[SERVED_NAME]
        self._log_dir = log_dir
        self._running: dict[int, Server] = {}

    def __call__(self, k: int) -> LiveServer:
        """Return the server with this k, started if it does not run."""
        if k not in self._running:
            while len(self._running) >= MAX_SERVERS:
                self._stop(next(iter(self._running)))
            self._running[k] = start_server(make_variant(self._target, k=k), log_dir=self._log_dir)
        server = self._running[k] = self._running.pop(k)  # the one used last comes last
        assert server.process is not None
        return LiveServer(server.url, k, server.process.log_path, server.process.pid)

    def stop(self) -> None:
        """Stop all."""
        for k in tuple(self._running):
            self._stop(k)

    def _stop(self, k: int) -> None:
        self._running.pop(k).stop()
