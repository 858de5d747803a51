from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_sparkperf.cli.render import main

YAML = """\
version: 1
targets:
  qwen36:
    launch: vllm
    executable: /opt/vllm/bin/vllm
    model: nvidia/Qwen3.6
    args: {max-num-seqs: 32, api-key: sk-very-secret}
    env: {HF_TOKEN: hf-very-secret, CUTE_DSL_ARCH: sm_121a}
    k: 3
    resident: {kv-cache-memory-bytes: 4294967296}
  box: {launch: docker, image: "vllm/vllm-openai:v0.24.0", model: m, env: {A_TOKEN: tok-very-secret}}
  own: {launch: command, start: "run --key {args} --port {port} -k {k}", args: {hf-token: hf-very-secret}}
  there: {launch: attach, url: "http://10.0.0.5:8000"}
  sim: {launch: sim}
"""
RECIPE = """\
recipe_version: "2"
model: acme/m
container: vllm:1
mods: [mods/x]
defaults: {port: 1, max_model_len: 4096}
env: {HF_TOKEN: $MY_TOKEN}
command: vllm serve {model} --port {port} --max-model-len {max_model_len} --api-key sk-very-secret
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sparkperf.yaml").write_text(YAML)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_TOKEN", "my-very-secret")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    for name in ("CI", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> str:
    assert main(argv) == status
    found = capsys.readouterr()
    assert "very-secret" not in found.out + found.err
    return found.out if status == 0 else found.err


def test_a_target_is_shown_as_it_would_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "qwen36") == (
        "# qwen36 k=3 (launch: vllm)\n"
        "/opt/vllm/bin/vllm serve nvidia/Qwen3.6 \\\n"
        "  --max-num-seqs 32 \\\n"
        '  --speculative-config \'{"method":"mtp","num_speculative_tokens":3}\' \\\n'
        "  --host 127.0.0.1 \\\n"
        "  --port PORT\n"
        "# variables set: CUTE_DSL_ARCH, HF_TOKEN\n"
    )


def test_k_options_and_residence_are_applied(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(
        capsys, "qwen36", "-k", "0", "--arg", "max-num-seqs=4", "--arg", "enforce-eager=true", "--resident"
    )

    assert out == (
        "# qwen36 k=0 --max-num-seqs 4 --enforce-eager (launch: vllm)\n"
        "/opt/vllm/bin/vllm serve nvidia/Qwen3.6 \\\n"
        "  --max-num-seqs 4 \\\n"
        "  --enforce-eager \\\n"
        "  --kv-cache-memory-bytes 4294967296 \\\n"
        "  --host 127.0.0.1 \\\n"
        "  --port PORT\n"
        "# variables set: CUTE_DSL_ARCH, HF_TOKEN\n"
    )


def test_a_container_is_shown_with_its_docker_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "box", "--json"))

    words = found["argv"]
    assert words[:2] == ["docker", "run"]
    assert words[words.index("--publish") + 1] == "127.0.0.1:PORT:PORT"
    assert words[words.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert words[words.index("--entrypoint") :] == [
        *("--entrypoint", "vllm", "vllm/vllm-openai:v0.24.0", "serve", "m"),
        *("--host", "0.0.0.0", "--port", "PORT"),
    ]
    assert not {"--privileged", "--volume"} & set(words)
    assert "docker.sock" not in str(words)
    assert (found["server"], found["launch"], found["image"]) == (
        "box k=0",
        "docker",
        "vllm/vllm-openai:v0.24.0",
    )
    assert "A_TOKEN" in found["env"]


def test_a_recipe_s_file_is_shown_with_its_notes(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "tiny.yaml", "-k", "2", "--set", "max_model_len=128")

    assert out.endswith(
        "  --entrypoint vllm vllm:1 serve acme/m \\\n"
        "  --max-model-len 128 \\\n"
        '  --speculative-config \'{"method":"mtp","num_speculative_tokens":2}\' \\\n'
        "  --host 0.0.0.0 \\\n"
        "  --port PORT\n"
        "# variables set: HF_TOKEN, PYTHONUNBUFFERED, VLLM_API_KEY, VLLM_ENGINE_READY_TIMEOUT_S, "
        "VLLM_LOGGING_COLOR\n"
        "# note: mods are not applied: the image must hold them already (mods/x)\n"
    )


def test_a_command_and_the_simulator_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert "run \\\n  --key \\\n  --port PORT \\\n  -k 0\n" in shown(capsys, "own")
    assert "sparkperf sim \\\n  --host 127.0.0.1 \\\n  --port PORT\n" in shown(capsys, "sim")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["there"], "target 'there' attaches to http://10.0.0.5:8000; nothing is started for it"),
        (["qwen36", "--arg", "x"], "'x' is not NAME=VALUE; write for example max-num-seqs=32"),
        (
            ["qwen36", "--set", "x=1"],
            "--set fills in a recipe's file; target 'qwen36' has overrides: for that",
        ),
        (
            ["qwen"],
            "target 'qwen' is not known; did you mean qwen36? targets are qwen36, box, own, there, sim",
        ),
    ],
)
def test_what_cannot_be_shown_says_why(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, *argv, status=2) == f"sparkperf render: {text}\n"
