from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_sparkperf
from pytest_sparkperf.adapters.launch import api_key, command, environment
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Launch, Target
from pytest_sparkperf.core.variant import Variant, make_variant


def variant(
    launch: Launch = "vllm", *, k: int = 0, args: dict[str, Any] | None = None, **target: Any
) -> Variant:
    return make_variant(Target("t", launch, model="m", args=FrozenMap(args or {}), **target), k=k)


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "vllm"
    path.write_text("")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return str(path)


def test_vllm_serves_on_loopback_with_the_variants_options(vllm: str) -> None:
    assert command(variant(k=3, args={"max-num-seqs": 4}), 8001) == (
        *(vllm, "serve", "m", "--max-num-seqs", "4"),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}'),
        *("--host", "127.0.0.1", "--port", "8001"),
    )


def test_options_for_two_servers_at_once_are_applied_where_asked_for(vllm: str) -> None:
    one = variant(args={"gpu-memory-utilization": 0.9}, resident=FrozenMap({"gpu-memory-utilization": 0.35}))
    assert command(one, 1)[4] == "0.9"
    assert command(one, 1, resident=True)[4] == "0.35"


def test_the_simulator_runs_from_this_package_and_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    one = variant("sim")
    assert command(one, 8001) == (
        *(sys.executable, "-m", "pytest_sparkperf.sim", "m"),
        *("--host", "127.0.0.1", "--port", "8001"),
    )
    root = str(Path(pytest_sparkperf.__file__).parents[1])
    assert environment(one)["PYTHONPATH"] == f"{root}{os.pathsep}/users/own"
    assert "VLLM_SERVER_DEV_MODE" not in environment(one)


def test_the_targets_environment_wins_over_ours_and_ours_over_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_COLOR", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("VLLM_SERVER_DEV_MODE", raising=False)
    env = environment(variant(env=FrozenMap({"CUDA_VISIBLE_DEVICES": "1"})))
    assert env["VLLM_LOGGING_COLOR"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["VLLM_SERVER_DEV_MODE"] == "1"
    assert env["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("ready_timeout_s", "engine_s"), [(600, None), (900.5, "901")])
def test_a_long_wait_is_passed_on_to_the_engine(
    monkeypatch: pytest.MonkeyPatch, ready_timeout_s: float, engine_s: str | None
) -> None:
    monkeypatch.delenv("VLLM_ENGINE_READY_TIMEOUT_S", raising=False)
    env = environment(variant(ready_timeout_s=ready_timeout_s))
    assert env.get("VLLM_ENGINE_READY_TIMEOUT_S") == engine_s


@pytest.mark.parametrize(
    ("args", "env", "key"),
    [
        ({}, {}, None),
        ({"api-key": "a"}, {"VLLM_API_KEY": "e"}, "a"),
        ({"api-key": ["a", "b"]}, {}, "a"),
        ({}, {"VLLM_API_KEY": "e"}, "e"),
    ],
)
def test_requests_carry_the_key_that_the_server_is_started_with(
    monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], env: dict[str, str], key: str | None
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    assert api_key(variant(args=args, env=FrozenMap(env))) == key
