from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import pytest_sparkperf
from pytest_sparkperf.adapters.launch import (
    api_key,
    command,
    container_environment,
    environment,
    plan_launch,
)
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Commands, Launch, Target
from pytest_sparkperf.core.variant import Variant, beside_another, make_variant


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
    assert command(beside_another(one), 1)[4] == "0.35"


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


def test_secret_options_reach_the_server_through_its_environment(vllm: str) -> None:
    one = variant(args={"api-key": ["sk-1", "sk-2"], "hf-token": "hf-1", "max-num-seqs": 4})

    assert "sk-1" not in str(command(one, 1))
    assert "hf-1" not in str(command(one, 1))
    assert (environment(one)["VLLM_API_KEY"], environment(one)["HF_TOKEN"]) == ("sk-1", "hf-1")


@pytest.mark.parametrize(
    ("ci", "launch", "offline"),
    [("true", "vllm", "1"), ("true", "sim", None), ("", "vllm", None), ("0", "vllm", None)],
)
def test_in_ci_a_server_downloads_nothing(
    monkeypatch: pytest.MonkeyPatch, ci: str, launch: Launch, offline: str | None
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("CI", ci)

    assert environment(variant(launch)).get("HF_HUB_OFFLINE") == offline


def test_a_container_gets_what_makes_vllm_readable_and_nothing_for_tests_only() -> None:
    one = variant("docker", image="i", env=FrozenMap({"A": "1"}))

    assert container_environment(one, {"A": "0", "B": "2"}) == {
        "VLLM_LOGGING_COLOR": "0",
        "PYTHONUNBUFFERED": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": "900",
        "A": "1",
        "B": "2",
    }


def test_a_command_s_url_says_which_port_must_be_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        target = Target("c", "command", commands=Commands(("true",)), urls=((None, url),))
        with pytest.raises(ServerError) as caught:
            plan_launch(make_variant(target))

    port = url.rpartition(":")[2]
    assert str(caught.value) == (
        f"port {port} already answers, and server 'c' would not be the one measured; stop what listens "
        "there, or give target 'c' another url and port."
    )


def test_a_server_elsewhere_may_answer_already() -> None:
    target = Target("c", "command", commands=Commands(("true",)), urls=((None, "https://spark.example"),))
    launch = plan_launch(make_variant(target))

    assert (launch.url, launch.port) == ("https://spark.example", 443)
