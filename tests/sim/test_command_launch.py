"""launch: command and launch: recipe, with simulators as what they start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_engine import DockerEngine

from pytest_sparkperf.adapters.process import ProcessSpec, SupervisedProcess
from pytest_sparkperf.adapters.server import Server, start_server
from pytest_sparkperf.core.errors import ConfigError, ServerError, SparkPerfError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Commands, Target
from pytest_sparkperf.core.variant import Variant, make_variant

LAUNCHER = str(Path(__file__).parents[1] / "data" / "servers" / "fake_launcher.py")
SIM = (sys.executable, "-m", "pytest_sparkperf.sim", "m", "--port", "{port}", "{args}")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Variant], Server]]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    started: list[Server] = []

    def start_one(variant: Variant) -> Server:
        started.append(start_server(variant, log_dir=tmp_path / "logs"))
        return started[-1]

    yield start_one
    for server in started:
        server.stop()
    assert not list((tmp_path / f"sparkperf-{os.getuid()}").glob("*"))


def commanded(commands: Commands, *, k: int | None = None, **keys: Any) -> Variant:
    keys.setdefault("ready_timeout_s", 60.0)
    return make_variant(Target("own", "command", commands=commands, **keys), k=k)


def failure(variant: Variant, start: Callable[[Variant], Server], kind: type[SparkPerfError]) -> str:
    with pytest.raises(kind) as caught:
        start(variant)
    return str(caught.value)


def test_a_command_in_the_foreground_is_the_server(start: Callable[[Variant], Server]) -> None:
    server = start(commanded(Commands(SIM), args=FrozenMap({"max-num-seqs": 2})))

    assert server.alive()
    assert server.facts["max_num_seqs"] == 2
    server.stop()
    assert not server.alive()


def test_a_launcher_that_returns_is_stopped_by_its_stop_command(
    start: Callable[[Variant], Server], tmp_path: Path
) -> None:
    commands = Commands(
        (sys.executable, LAUNCHER, "start", "m", "--port", "{port}"),
        (sys.executable, LAUNCHER, "ready", "{port}"),
        (sys.executable, LAUNCHER, "stop", "{port}"),
    )
    server = start(commanded(commands))
    port = server.url.rpartition(":")[2]

    assert server.alive()
    server.stop()

    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == f"start m --port {port}"
    assert set(calls[1:-1]) == {f"ready {port}"}
    assert calls[-1] == f"stop {port}"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_server_of_a_launcher_that_returned_is_alive_while_it_answers(
    start: Callable[[Variant], Server], tmp_path: Path
) -> None:
    start_words = (sys.executable, LAUNCHER, "start", "m", "--port", "{port}")
    server = start(commanded(Commands(start_words, (), ("true",))))
    assert server.alive()

    os.kill(int((tmp_path / "pid").read_text()), 9)

    assert not server.alive()


def test_a_launcher_that_fails_is_told(start: Callable[[Variant], Server], tmp_path: Path) -> None:
    variant = commanded(Commands((sys.executable, LAUNCHER, "fail", "{port}"), (), ("true",)))

    assert failure(variant, start, ServerError) == (
        "server 'own' exited with status 3 while starting. The log "
        f"{str(tmp_path / 'logs' / 'own.log')!r} ends with:\n  | no such cluster"
    )


def test_a_ready_command_that_never_succeeds_ends_the_start(start: Callable[[Variant], Server]) -> None:
    commands = Commands((sys.executable, LAUNCHER, "wait", "{port}"), ("sh", "-c", "echo not yet; false"))

    text = failure(commanded(commands, ready_timeout_s=1.0), start, ServerError)

    assert text.startswith(
        "server 'own' was not ready within 1 s: 'sh' said 'not yet'. If it only needs longer,"
    )


def test_a_program_that_is_not_there_is_named(start: Callable[[Variant], Server]) -> None:
    assert failure(commanded(Commands(("./no.sh", "{port}"))), start, ServerError) == (
        "./no.sh of target 'own' is no program: start: begins with a program on PATH or the path of an "
        "executable file."
    )


def test_a_stop_command_that_fails_is_told_and_tried_again(tmp_path: Path, record_folder: Path) -> None:
    flag = tmp_path / "flag"
    process = SupervisedProcess.start(
        ProcessSpec(
            ("sleep", "600"),
            dict(os.environ),
            tmp_path / "log",
            stop_timeout_s=0.2,
            record_dir=record_folder,
            cleanup_commands=(("test", "-e", str(flag)),),
        )
    )

    with pytest.raises(ServerError) as caught:
        process.stop()

    assert str(caught.value) == (
        f"'sleep' was stopped, but what ends the rest of it failed: 'test -e {flag}' (see "
        f"{str(tmp_path / 'log')!r}); run `sparkperf stop` once the reason is gone."
    )
    assert len(list(record_folder.iterdir())) == 1


def test_a_start_is_ended_when_memory_runs_out(
    start: Callable[[Variant], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = commanded(Commands((sys.executable, LAUNCHER, "wait", "{port}")))

    with pytest.raises(ServerError) as caught:
        start_server(variant, log_dir=tmp_path / "logs", memory_floor=1 << 60)

    text = str(caught.value)
    assert text.startswith("server 'own' was ended while starting: ")
    assert " of memory were available (" in text
    assert text.endswith(
        "of swap free), and below 1073741824.0 GiB this machine may stall; lower gpu-memory-utilization or "
        "kv-cache-memory-bytes of target 'own', or set its `memory_floor_gib`. The log "
        f"{str(tmp_path / 'logs' / 'own.log')!r} is empty."
    )


def test_a_server_that_is_up_is_not_ended_for_memory(
    start: Callable[[Variant], Server], tmp_path: Path
) -> None:
    process = start(commanded(Commands(SIM))).process

    assert process is not None
    assert process.short_of_memory is None


def test_secrets_that_a_server_logs_are_hidden(start: Callable[[Variant], Server]) -> None:
    words = ("sh", "-c", "echo RuntimeError: bad token $A_TOKEN; echo key $A_TOKEN; exit 1", "{port}")

    text = failure(
        commanded(Commands(words), env=FrozenMap({"A_TOKEN": "hf-very-secret"})), start, ServerError
    )

    assert "hf-very-secret" not in text
    assert "RuntimeError: bad token ***" in text
    assert "  | key ***" in text


RECIPE = """\
recipe_version: "1"
name: tiny
model: acme/m
container: vllm:1
mods: [mods/x]
defaults: {port: 8000, host: 0.0.0.0, max_num_seqs: 3}
env: {A_TOKEN: $MY_TOKEN}
command: |
  vllm serve acme/m --served-model-name one two --host {host} --port {port} \\
    --max-num-seqs {max_num_seqs} --speculative-config '{{"method":"mtp","num_speculative_tokens":2}}'
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE)
    return str(path)


def fake_vllm(folder: Path) -> str:
    path = folder / "vllm"
    path.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m pytest_sparkperf.sim "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_recipe_runs_with_a_vllm_of_this_machine(
    start: Callable[[Variant], Server], recipe: str, tmp_path: Path
) -> None:
    target = Target("r", "recipe", recipe=recipe, executable=fake_vllm(tmp_path))

    server = start(make_variant(target))

    assert (server.k, server.model, server.facts["max_num_seqs"]) == (2, "one", 3)


def test_k_and_options_of_a_test_change_what_a_recipe_starts(
    start: Callable[[Variant], Server], recipe: str, tmp_path: Path
) -> None:
    target = Target(
        "r", "recipe", recipe=recipe, executable=fake_vllm(tmp_path), overrides=FrozenMap({"max_num_seqs": 7})
    )

    assert start(make_variant(target, k=0)).facts["max_num_seqs"] == 7
    server = start(make_variant(target, k=1, args={"max-num-seqs": 9}))
    assert (server.k, server.facts["max_num_seqs"]) == (1, 9)


def test_a_recipe_runs_in_its_own_container(
    start: Callable[[Variant], Server], recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MY_TOKEN", "hf-secret")
    engine = DockerEngine.start(tmp_path)
    try:
        server = start(make_variant(Target("r", "recipe", recipe=recipe)))
        server.stop()
        ((_, *words),) = engine.calls("run")
    finally:
        engine.stop()

    port = server.url.rpartition(":")[2]
    assert (server.k, server.facts["image"]) == (2, "vllm:1")
    assert words[words.index("--entrypoint") :] == [
        *("--entrypoint", "vllm", "vllm:1", "serve", "acme/m", "--served-model-name", "one", "two"),
        *("--max-num-seqs", "3", "--speculative-config", '{"method":"mtp","num_speculative_tokens":2}'),
        *("--host", "0.0.0.0", "--port", port),
    ]
    assert "A_TOKEN" in words
    assert "hf-secret" not in str(words)


def test_a_recipe_that_takes_a_shell_runs_in_one_on_the_chosen_port(
    start: Callable[[Variant], Server], tmp_path: Path
) -> None:
    fake_vllm(tmp_path)
    path = tmp_path / "shell.yaml"
    path.write_text(
        f"command: |\n  export PATH={tmp_path}:$PATH\n  exec vllm serve m --port {{port}}\n"
        "defaults: {port: 1}\n"
    )

    assert start(make_variant(Target("r", "recipe", recipe=str(path)))).model == "m"

    path.write_text("command: vllm serve $M --port 8000\n")
    assert failure(make_variant(Target("r", "recipe", recipe=str(path))), start, ConfigError) == (
        "target 'r': the recipe's command takes a shell and has a port of its own; write {port} where it "
        "stands."
    )
