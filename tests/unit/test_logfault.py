"""Why a server did not start or died, read from logs of real and written failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.core.serverlog import Fatal, fatal_reason, find_fatal

DATA = Path(__file__).parent.parent / "data" / "logs"


def log(name: str) -> str:
    with (DATA / f"{name}.log").open(encoding="utf-8", newline="") as file:  # carriage returns stay
        return file.read()


FREE_MEMORY = (
    "this is a check of memory, not of speed: end what else holds memory of the device, "
    "or lower gpu-memory-utilization"
)
KILLED = "no exception stands before it: the process was killed, often for want of memory (see dmesg)"


@pytest.mark.parametrize(
    ("name", "fatal"),
    [
        (
            "moe_rejected",
            Fatal(
                "ValueError: NvFp4 MoE backend 'FLASHINFER_CUTLASS' does not support the "
                "deployment configuration "
                "since kernel does not support quantization scheme QuantKey(u8).",
                "configuration",
            ),
        ),
        ("free_memory_info", None),
        (
            "free_cap",
            Fatal(
                "ValueError: Free memory on device cuda:0 (101.92/121.69 GiB) on startup is "
                "less than desired GPU "
                "memory utilization (0.87, 105.87 GiB). Decrease GPU memory utilization or "
                "reduce GPU memory used "
                "by other processes.",
                "environment",
                FREE_MEMORY,
            ),
        ),
        (
            "three_boots",
            Fatal(
                "ValueError: Free memory on device cuda:0 (111.65/121.69 GiB) on startup is "
                "less than desired GPU "
                "memory utilization (0.92, 111.95 GiB). Decrease GPU memory utilization or "
                "reduce GPU memory used "
                "by other processes.",
                "environment",
                FREE_MEMORY,
            ),
        ),
        (
            "init_timeout",
            Fatal(
                "RuntimeError: Engine core initialization failed. See root cause above. Failed "
                "core proc(s): {}",
                "environment",
                "no engine process failed, none was ready within vLLM's own limit: a first "
                "start with empty compile "
                "caches can take over 600 s; raise VLLM_ENGINE_READY_TIMEOUT_S, or start again",
            ),
        ),
        (
            "port_busy",
            Fatal(
                "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): "
                "address already in use",
                "environment",
                "end what holds the port, or choose another one",
            ),
        ),
        (
            "jit_then_death",
            Fatal(
                "TimeoutError: RPC call to sample_tokens timed out.",
                "engine",
                "a kernel that compiles during inference can outlast "
                "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS (300 s): "
                "start again with the compile cache it left, or raise that limit",
            ),
        ),
        (
            "death_line_on_normal_stop",
            Fatal(
                "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", "engine", KILLED
            ),
        ),
        ("h200_failed_start", Fatal("ModuleNotFoundError: No module named 'flashinfer'", "engine")),
        ("h200_engine_dead", Fatal("ModuleNotFoundError: No module named 'flashinfer'", "engine")),
        ("cpu_k1_prefix_cache_crash", Fatal("TypeError: 'function' object is not subscriptable", "engine")),
        (
            "cpu_k3_grammar_crash",
            Fatal(
                "RuntimeError: The size of tensor a (6) must match the size of tensor b (5) at non-singleton "
                "dimension 1",
                "engine",
            ),
        ),
        (
            "cpu_k3_killed",
            Fatal("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "engine", KILLED),
        ),
        ("cpu_off", None),
        ("cpu_k1", None),
        ("cpu_k2_stopped", None),
        ("h200_off", None),
        ("h200_k3", None),
        ("ready_lines", None),
    ],
)
def test_the_line_that_names_the_cause_is_found(name: str, fatal: Fatal | None) -> None:
    assert find_fatal(log(name)) == fatal
    assert fatal_reason(log(name)) == (None if fatal is None else fatal.line)


def test_death_lines_of_a_requested_stop_are_no_failure() -> None:
    assert fatal_reason(log("death_line_on_normal_stop"), stop_requested=True) is None
    assert fatal_reason(log("cpu_k3_killed"), stop_requested=True) is None


def test_an_engine_that_had_crashed_before_the_stop_stays_a_failure() -> None:
    assert fatal_reason(log("h200_engine_dead"), stop_requested=True) == (
        "ModuleNotFoundError: No module named 'flashinfer'"
    )


def test_a_server_that_became_ready_got_over_earlier_errors() -> None:
    assert fatal_reason(log("free_cap") + log("h200_off")) is None


def test_errors_of_an_earlier_start_are_no_reason() -> None:
    banner = "INFO 11-15 19:35:53 api_server.py:564] vLLM API server version 0.6.3\n"

    assert fatal_reason(banner + log("free_cap") + banner) is None


def test_the_exception_worded_for_users_is_taken_of_two_that_belong_together() -> None:
    text = (
        "(APIServer pid=1) Traceback (most recent call last):\n"
        "(APIServer pid=1) KeyError: 'qwen3_5'\n"
        "(APIServer pid=1) \n"
        "(APIServer pid=1) During handling of the above exception, another exception occurred:\n"
        "(APIServer pid=1) Traceback (most recent call last):\n"
        "(APIServer pid=1) ValueError: The checkpoint you are trying to load has model type `qwen3_5`\n"
    )

    assert fatal_reason(text) == "ValueError: The checkpoint you are trying to load has model type `qwen3_5`"


def test_a_validation_error_is_told_with_its_words() -> None:
    text = (
        "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "(APIServer pid=1)   Value error, max_model_len (99) is too great [type=value_error]\n"
    )

    assert fatal_reason(text) == (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig: "
        "Value error, max_model_len (99) is too great [type=value_error]"
    )


def test_an_unknown_argument_is_a_matter_of_configuration() -> None:
    text = (
        "usage: vllm [-h] [-v] {serve,bench} ...\nvllm: error: unrecognized arguments: --moe-backnd marlin\n"
    )

    assert find_fatal(text) == Fatal(
        "vllm: error: unrecognized arguments: --moe-backnd marlin", "configuration"
    )


def test_a_failed_request_is_no_death_of_the_server() -> None:
    text = (
        'INFO:     127.0.0.1:32768 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n'
        "ERROR:    Exception in ASGI application\n"
        "Traceback (most recent call last):\n"
        "TypeError: unhashable type: 'dict'\n"
        "(APIServer pid=1) ERROR 11-30 16:05:04 [server_utils.py:414] RequestValidationError caught.\n"
        "(APIServer pid=1) ERROR 11-30 16:05:04 [server_utils.py:414] "
        "json.decoder.JSONDecodeError: Expecting value\n"
    )

    assert fatal_reason(text) is None
    assert fatal_reason(f"INFO:     Application startup complete.\n{text}") is None


def test_a_silent_log_gives_no_reason() -> None:
    assert fatal_reason("") is None
