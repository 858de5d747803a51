"""A secret that a server is given shows nowhere, in whatever way the server is had."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_engine import DockerEngine
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.adapters.rendering import render_launch
from pytest_sparkperf.adapters.server import Server, attach_server, start_server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Commands, Target
from pytest_sparkperf.core.variant import Variant, make_variant

KEY, TOKEN = "sk-canary-3f9a", "hf_canaryCANARYcanary"
ENV = FrozenMap({"HF_TOKEN": TOKEN})
ARGS = FrozenMap({"api-key": KEY})
# Says everything that it was given, as some releases do, and fails where it is told to.
SERVER = f"""#!/bin/sh
env
echo "non-default args: $*"
echo "server uses key $VLLM_API_KEY and hf_token='$HF_TOKEN'"
[ -n "$FAKE_FAILURE" ] && echo "ValueError: token $HF_TOKEN of $VLLM_API_KEY is not valid" && exit 1
[ "$1" = serve ] && shift
exec {sys.executable} -m pytest_sparkperf.sim "$@"
"""
RECIPE = """\
name: tiny
defaults: {{port: 8000}}
env: {{HF_TOKEN: {token}}}
command: vllm serve m --port {{port}} --api-key {key}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vllm").write_text(SERVER)
    (tmp_path / "vllm").chmod(0o755)
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(token=TOKEN, key=KEY))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CANARY_KEY", KEY)
    return tmp_path


@pytest.fixture
def engine(home: Path) -> Iterator[DockerEngine]:
    started = DockerEngine.start(home)
    yield started
    started.stop()


def target(kind: str, home: Path, *, failing: bool = False) -> Target:
    executable, recipe = str(home / "vllm"), str(home / "recipe.yaml")
    env = FrozenMap({**ENV, **({"FAKE_FAILURE": "1"} if failing else {})})
    if kind == "vllm":
        return Target("own", "vllm", model="m", executable=executable, env=env, args=ARGS)
    if kind == "command":
        start = Commands((executable, "m", "--port", "{port}", "{args}"))
        return Target("own", "command", commands=start, env=env, args=ARGS)
    if kind == "recipe":
        return Target("own", "recipe", recipe=recipe, executable=executable, env=env)
    if kind == "recipe in a container":
        return Target("own", "recipe", recipe=recipe, image="vllm:1", env=env)
    if kind == "docker":
        return Target("own", "docker", image="vllm:1", model="m", env=env, args=ARGS)
    return Target("own", "sim", env=env, args=ARGS)


def titles(server: Server) -> str:
    """Return the command lines of a server's processes and of its supervisor, as ps shows them."""
    assert server.process is not None
    pids = [server.process.supervisor_pid, *server.process.pids()]
    return "".join(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids)


def files_of(home: Path) -> dict[str, str]:
    """Return every file that a run keeps: logs and records."""
    kept = [path for name in ("logs", f"sparkperf-{os.getuid()}") for path in (home / name).rglob("*")]
    return {str(path): path.read_text() for path in kept if path.is_file()}


def assert_hidden(texts: dict[str, str]) -> None:
    assert {where for where, text in texts.items() if KEY in text or TOKEN in text} == set()


def start(variant: Variant, home: Path, said: list[str]) -> Server:
    now = iter(range(0, 100_000, 2))  # each look at the clock is 2 s later, so that progress is told

    def clock() -> float:
        return float(next(now))

    return start_server(variant, log_dir=home / "logs", outside=Surroundings(said.append, clock))


@pytest.mark.parametrize("kind", ["vllm", "command", "recipe", "recipe in a container", "docker", "sim"])
def test_a_running_server_shows_no_secret(kind: str, home: Path, engine: DockerEngine) -> None:
    variant = make_variant(target(kind, home))
    said: list[str] = []

    server = start(variant, home, said)
    shown = {"titles": titles(server), "log": server.log or "", "said": "\n".join(said)}
    shown |= {path: text for path, text in files_of(home).items() if path.endswith(".json")}
    server.stop()

    assert server.api_key == KEY
    assert any(path.endswith(".json") for path in shown)
    shown |= {"variant": repr(variant), "label": variant.describe(), "server": repr(server)}
    shown |= {"render": repr(render_launch(variant)), "docker": str(engine.calls()), **files_of(home)}
    assert_hidden(shown)


@pytest.mark.parametrize("kind", ["vllm", "command", "recipe"])
def test_a_failed_start_shows_no_secret(kind: str, home: Path) -> None:
    said: list[str] = []
    with pytest.raises(ServerError) as caught:
        start(make_variant(target(kind, home, failing=True)), home, said)

    assert "ValueError: token *** of *** is not valid" in str(caught.value)
    assert "HF_TOKEN=***" in "".join(files_of(home).values())
    assert_hidden({"error": str(caught.value), "said": "\n".join(said), **files_of(home)})


def test_an_attached_server_shows_no_key(simulator: StartSimulator, home: Path) -> None:
    running = simulator("--unpaced", "--api-key", KEY)
    urls = ((None, running.url),)
    variant = make_variant(Target("rented", "attach", urls=urls, api_key_env="CANARY_KEY"))

    server = attach_server(variant)

    assert server.api_key == KEY
    assert_hidden({"variant": repr(variant), "label": variant.describe(), "server": repr(server)})
