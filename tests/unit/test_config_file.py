"""sparkperf.yaml from the file to targets: file and line of every fault, paths from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.adapters.config_file import parse_config_text, read_config, resolve_path
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.targets import Config, Hardware
from pytest_sparkperf.core.variant import make_variant, serve_arguments

DESIGN = """\
version: 1
default_target: qwen36
targets:
  qwen36:
    launch: vllm                       # vllm | docker | recipe | command | attach | sim
    executable: /opt/vllm/bin/vllm     # default: vllm on PATH
    model: nvidia/Qwen3.6-35B-A3B-NVFP4
    args: {quantization: modelopt, moe-backend: marlin, max-model-len: 65536, max-num-seqs: 32}
    env: {CUTE_DSL_ARCH: sm_121a}
    speculative: {method: mtp, moe_backend: triton}
    k: 3
    resident: {gpu-memory-utilization: 0.35, kv-cache-memory-bytes: 4294967296}
    ready_timeout_s: 900
  rented:
    launch: attach
    url: {0: "http://10.0.0.5:8000", 3: "http://10.0.0.5:8001"}
    api_key_env: SPARK_API_KEY
    traffic: exclusive
    hardware: {gpu: NVIDIA GB10, count: 1, memory_gib: 128}
workloads:
  balanced: {dataset: random, prompt_tokens: 1000, output_tokens: 1000, concurrency: 4}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sparkperf.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def said(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigError) as caught:
        parse_config_text(data, "sparkperf.yaml", Path("/nowhere"))
    return str(caught.value)


def args_of(line: str) -> tuple[str, ...]:
    text = f"version: 1\ntargets:\n  x:\n    launch: sim\n    {line}\n"
    config = parse_config_text(text.encode(), "sparkperf.yaml", Path("/nowhere"))
    return serve_arguments(make_variant(config.targets["x"]))


def test_reads_the_design_example(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, DESIGN))

    assert (config.default_target, list(config.targets)) == ("qwen36", ["qwen36", "rented"])
    assert serve_arguments(make_variant(config.targets["qwen36"], k=0)) == (
        "nvidia/Qwen3.6-35B-A3B-NVFP4",
        *("--quantization", "modelopt", "--moe-backend", "marlin"),
        *("--max-model-len", "65536", "--max-num-seqs", "32"),
    )
    assert make_variant(config.targets["rented"], k=3).url_for_k() == "http://10.0.0.5:8001"
    assert config.targets["rented"].hardware == Hardware("NVIDIA GB10", 1, 128)
    assert config.workloads["balanced"]["concurrency"] == 4


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("args: {async-scheduling: off}", ("--async-scheduling", "off")),
        ("args: {x: on, y: yes, z: no}", ("--x", "on", "--y", "yes", "--z", "no")),
        ("args: {x: true, y: false, z: null}", ("--x", "--no-y")),
        ("args: {slack: 2e-2}", ("--slack", "0.02")),
        ("args: {x: 012, y: 1:30, z: 2026-05-01}", ("--x", "012", "--y", "1:30", "--z", "2026-05-01")),
        ("args: {hf-overrides: {rope: {factor: 2.0}}}", ("--hf-overrides", '{"rope":{"factor":2.0}}')),
        ("args: {served_model_name: [a, b]}", ("--served-model-name", "a", "b")),
    ],
)
def test_words_of_args_arrive_as_written(line: str, arguments: tuple[str, ...]) -> None:
    assert args_of(line) == arguments


def test_paths_are_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "vllm").mkdir()
    text = (
        "version: 1\n"
        "targets:\n"
        "  here: {launch: vllm, model: models/tiny, executable: bin/vllm, speculative: "
        "{model: ./draft}, k: 1,\n"
        "         args: {chat-template: ./x.jinja, middleware: [./a, b], tokenizer: ../t, x: models/tiny}}\n"
        "  hub: {launch: vllm, model: nvidia/Qwen3.6, executable: vllm}\n"
        "  absolute: {launch: vllm, model: ./m, executable: /opt/vllm}\n"
    )
    targets = read_config(written(tmp_path, text)).targets
    here = targets["here"]

    assert here.model == str(tmp_path / "models/tiny")
    assert here.executable == str(tmp_path / "bin/vllm")
    assert here.speculative == {"model": str(tmp_path / "draft")}
    assert here.args == {
        "chat-template": str(tmp_path / "x.jinja"),
        "middleware": [str(tmp_path / "a"), "b"],
        "tokenizer": str(tmp_path / "../t"),
        "x": "models/tiny",
    }
    assert (targets["hub"].model, targets["hub"].executable) == ("nvidia/Qwen3.6", "vllm")
    assert (targets["absolute"].model, targets["absolute"].executable) == (str(tmp_path / "m"), "/opt/vllm")


def test_a_file_of_prompts_is_taken_from_the_folder_too(tmp_path: Path) -> None:
    text = (
        "version: 1\nworkloads:\n  chat: {dataset: data/s.json}\n  all: {dataset: /data/l.jsonl}\n"
        "  made: {dataset: sonnet}\n"
    )

    workloads = read_config(written(tmp_path, text)).workloads

    assert {name: keys["dataset"] for name, keys in workloads.items()} == {
        "chat": str(tmp_path / "data" / "s.json"),
        "all": "/data/l.jsonl",
        "made": "sonnet",
    }


def test_a_path_at_home_is_expanded(tmp_path: Path) -> None:
    assert resolve_path("~/models/tiny", tmp_path) == str(Path.home() / "models/tiny")


def test_a_word_too_long_for_a_file_stays_a_word(tmp_path: Path) -> None:
    assert resolve_path("x" * 5000, tmp_path) == "x" * 5000


def test_a_file_that_only_says_its_version_has_no_targets() -> None:
    assert parse_config_text(b"version: 1\n", "sparkperf.yaml", Path("/nowhere")) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sparkperf.yaml: the file is empty; write version: 1, then targets:"),
        ("# nothing yet\n", "sparkperf.yaml: the file is empty; write version: 1, then targets:"),
        (
            "- a\n- b\n",
            "sparkperf.yaml:1: ['a', 'b'] is not a mapping of keys; start with version: 1, then targets:",
        ),
        ("targets: {}\n", "sparkperf.yaml:1: version is missing; write version: 1 at the top"),
        (
            "# 2\nversion: 2\n",
            "sparkperf.yaml:2: version: 2 is not a known version of this file; write version: 1",
        ),
        (
            "version: 1\ntargets:\n  x: {launch: sim}\n  x: {launch: sim}\n",
            "sparkperf.yaml:4: targets.x: is given twice, first in line 3; keep one",
        ),
        (
            "version: 1\ntargets:\n  x:\n    launch: sim\n    modle: m\n",
            (
                "sparkperf.yaml:5: targets.x.modle: is not a known key; did you mean model? "
                "valid keys are launch, model, args, env, speculative, k, resident, ready_timeout_s, "
                "silence_timeout_s, memory_floor_gib"
            ),
        ),
        (
            "version: 1\ntargets:\n  x:\n    launch: sim\n    k: three\n",
            (
                "sparkperf.yaml:5: targets.x.k: 'three' is not a whole number of 0 or more; "
                "give num_speculative_tokens, 0 for none"
            ),
        ),
        (
            "version: 1\ntargets:\n  x:\n    launch: attach\n    url:\n      0: http://h:1\n      3: here\n",
            (
                "sparkperf.yaml:7: targets.x.url.3: 'here' is not the URL of a server; "
                "give its root, such as http://127.0.0.1:8000"
            ),
        ),
        (
            "version: 1\ntargets:\n  x:\n    launch: sim\n    args:\n      a: 1\n      port: off\n",
            (
                "sparkperf.yaml:7: targets.x.args.port: 'off' is not a port; "
                "give a whole number from 1 to 65535, or leave it out for a free one"
            ),
        ),
        (
            "version: 1\ntargets:\n  x:\n    launch: attach\n",
            (
                "sparkperf.yaml:3: targets.x: url is missing; "
                "give the root of the running server, such as http://127.0.0.1:8000"
            ),
        ),
        (
            "version: 1\ntargets:\n\tx: 1\n",
            "sparkperf.yaml:3: holds a tab where YAML takes blanks only; put blanks there",
        ),
        (
            "version: 1\ntargets:\n  x: {launch: sim, args: [}\n",
            "sparkperf.yaml:3: is not valid YAML: expected the node content, but found '}'",
        ),
        (
            "version: 1\ntargets: !!python/name:os.system\n",
            (
                "sparkperf.yaml:2: targets: has the tag !!python/name:os.system, which is not allowed; "
                "write the value without a tag"
            ),
        ),
        (
            "version: 1\n---\nversion: 1\n",
            "sparkperf.yaml:2: starts a second document; keep one, without a further ---",
        ),
        (b"version: 1\n# caf\xe9\n", "sparkperf.yaml:2: is not UTF-8 (byte 0xe9); save the file as UTF-8"),
    ],
)
def test_what_is_wrong_names_file_and_line(text: str | bytes, message: str) -> None:
    assert said(text) == message


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    text = "targets:\n  x: {launch: sim, k: -1}\n  y: {}\n  x: 3\nextra: 1\nversion: 1\n"

    assert said(text) == (
        "sparkperf.yaml:2: targets.x.k: -1 is not a whole number of 0 or more; give "
        "num_speculative_tokens, 0 for none\n"
        "sparkperf.yaml:3: targets.y: launch is missing; give one of vllm, docker, recipe, "
        "command, attach, sim\n"
        "sparkperf.yaml:4: targets.x: is given twice, first in line 2; keep one\n"
        "sparkperf.yaml:5: extra: is not a known key; valid keys are version, "
        "default_target, max_resident, targets, workloads"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sparkperf.yaml"
    with pytest.raises(ConfigError) as caught:
        read_config(path)

    assert str(caught.value) == (
        f"sparkperf.yaml: cannot be read: no such file or directory ({path}); name a readable file"
    )


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path, shown_as="conf")

    assert str(caught.value) == f"conf: cannot be read: is a directory ({tmp_path}); name a readable file"
