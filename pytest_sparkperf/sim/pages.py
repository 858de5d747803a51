"""The small pages of a server: what it is, what it serves, what it was started with."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_sparkperf.sim.prefix_cache import BLOCK_TOKENS
from pytest_sparkperf.sim.settings import ServerSettings

# vLLM's version whose answers are imitated, and that it is not vLLM.
_VERSION = "0.32.0+{}sparkperf.sim"
OWNER = "sparkperf-sim"
OTHER_MODEL = "another-model"  # what the fault wrong_model names
_Json = dict[str, object]


def version(settings: ServerSettings) -> str:
    """Return the version it tells: also that its speed means nothing, where it is not paced."""
    return _VERSION.format("" if settings.paced else "unpaced.")


def cache_labels(settings: ServerSettings) -> dict[str, str]:
    """Return the labels of the metric ``cache_config_info`` that a simulator can state."""
    engine = settings.engine
    return {
        "block_size": str(BLOCK_TOKENS),
        "enable_prefix_caching": str(engine.prefix_caching),
        "kv_cache_size_tokens": str(settings.profile.kv_tokens(engine.draft_tokens)),
    }


def models_page(settings: ServerSettings, names: Sequence[str], created: int) -> _Json:
    """Return ``GET /v1/models``."""
    models: list[_Json] = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": OWNER,
            "root": settings.model,
            "parent": None,
            "max_model_len": settings.max_model_len,
            "permission": [],
        }
        for name in names
    ]
    return {"object": "list", "data": models}


def server_info_page(settings: ServerSettings) -> _Json:
    """Return ``GET /server_info?config_format=json``: the part of vLLM's page that a simulator can state."""
    profile, engine, speculation = settings.profile, settings.engine, settings.speculation
    config: _Json = {
        "model_config": {
            "model": settings.model,
            "served_model_name": settings.served_names[0],
            "max_model_len": settings.max_model_len,
            "seed": engine.seed,
        },
        "cache_config": {
            "block_size": BLOCK_TOKENS,
            "enable_prefix_caching": engine.prefix_caching,
            "kv_cache_size_tokens": profile.kv_tokens(engine.draft_tokens),
            "kv_cache_max_concurrency": profile.kv_tokens(engine.draft_tokens) / settings.max_model_len,
        },
        "scheduler_config": {
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "enable_chunked_prefill": True,
            "policy": "fcfs",
        },
        "speculative_config": speculation
        and {
            "method": speculation.method,
            "num_speculative_tokens": speculation.num_speculative_tokens,
            "model": settings.model,
        },
    }
    environment: _Json = {
        "simulated": True,
        "profile": profile.name,
        "gpu": profile.gpu,
        "slowdown": engine.slowdown,
        "paced": settings.paced,
        "time_scale": settings.time_scale,
        # Steps that take twice as long are those of a memory half as fast; unpaced ones are nobody's.
        "bandwidth_gb_s": profile.bandwidth_bytes_per_s / 1e9 / engine.slowdown if settings.paced else None,
        "gb_per_token": profile.bytes_per_token / 1e9,
        "launch_factor": engine.conditions.launch_factor,
    }
    return {"vllm_config": config, "vllm_env": {}, "system_env": environment}


def start_lines(settings: ServerSettings) -> list[tuple[str, str, str]]:
    """Return what the log says before the server listens: process, source and text of each line."""
    profile, length = settings.profile, settings.max_model_len
    kv_tokens = profile.kv_tokens(settings.engine.draft_tokens)
    size = f"GPU KV cache size: {kv_tokens:,} tokens"
    simulated = f"SIMULATED as {profile.name}" + (
        "" if settings.paced else ", not paced: no speed of it counts"
    )
    concurrency = kv_tokens / length
    room = f"Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x"
    ignored = ", ".join(settings.ignored_options)
    return [
        ("APIServer", "simulator", f"version {version(settings)}, model {settings.model}, {simulated}"),
        *([("APIServer", "simulator", f"Accepted and ignored: {ignored}")] if ignored else []),
        ("EngineCore", "kv_cache_utils.py", size),
        ("EngineCore", "kv_cache_utils.py", room),
    ]


_NO_MEMORY = (
    "ValueError: Free memory on device (3.21/119.68 GiB) on startup is less than desired GPU "
    "memory utilization (0.9, 107.71 GiB). Decrease GPU memory utilization or reduce GPU memory used by "
    "other processes."
)
_NO_ENGINE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
# How vLLM's log ends when its engine cannot start (fault exit_at_start): process and text of each line.
FAILED_START = (
    ("EngineCore", "EngineCore failed to start."),
    ("EngineCore", "Traceback (most recent call last):"),
    ("EngineCore", _NO_MEMORY),
    ("APIServer", _NO_ENGINE),
)
_ENGINE_GONE = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
    "the root cause."
)
# The same where it dies at work (fault engine_death_on): process, source and text of each line.
DEAD_ENGINE = (
    ("EngineCore", "core.py", "EngineCore encountered a fatal error."),
    ("EngineCore", "core.py", "Traceback (most recent call last):"),
    (
        "EngineCore",
        "core.py",
        "RuntimeError: a grammar met draft tokens (simulated by fault engine_death_on)",
    ),
    ("APIServer", "serving.py", _ENGINE_GONE),
)
