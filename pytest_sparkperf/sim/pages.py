"""The small pages of a server: what it is, what it serves, what it was started with."""

from __future__ import annotations

from pytest_sparkperf.sim.settings import ServerSettings

VERSION = "0.32.0+sparkperf.sim"  # vLLM's version whose answers are imitated, and that it is not vLLM
OWNER = "sparkperf-sim"
_Json = dict[str, object]


def models_page(settings: ServerSettings, created: int) -> _Json:
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
        for name in settings.served_names
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
            "block_size": 16,
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
    }
    return {"vllm_config": config, "vllm_env": {}, "system_env": environment}


def start_lines(settings: ServerSettings) -> list[tuple[str, str, str]]:
    """Return what the log says before the server listens: process, source and text of each line."""
    profile, length = settings.profile, settings.max_model_len
    kv_tokens = profile.kv_tokens(settings.engine.draft_tokens)
    size = f"GPU KV cache size: {kv_tokens:,} tokens"
    concurrency = kv_tokens / length
    room = f"Maximum concurrency for {length:,} tokens per request: {concurrency:.2f}x"
    return [
        ("APIServer", "simulator", f"version {VERSION}, model {settings.model}, SIMULATED as {profile.name}"),
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
