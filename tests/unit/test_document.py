"""A document of plain values read into targets: what is taken, and every fault in words."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.document import parse_config, parse_targets
from pytest_sparkperf.core.faults import DocumentError
from pytest_sparkperf.core.targets import Commands, Config, Hardware, Target

DESIGN: dict[str, Any] = {
    "version": 1,
    "default_target": "qwen36",
    "targets": {
        "qwen36": {
            "launch": "vllm",
            "executable": "/opt/vllm/bin/vllm",
            "model": "nvidia/Qwen3.6-35B-A3B-NVFP4",
            "args": {"quantization": "modelopt", "moe_backend": "marlin", "max-num-seqs": 32},
            "env": {"CUTE_DSL_ARCH": "sm_121a"},
            "speculative": {"method": "mtp", "moe_backend": "triton"},
            "k": 3,
            "resident": {"gpu-memory-utilization": 0.35},
            "ready_timeout_s": 1200,
        },
        "rented": {
            "launch": "attach",
            "url": {0: "http://10.0.0.5:8000", 3: "http://10.0.0.5:8001/"},
            "api_key_env": "SPARK_API_KEY",
            "traffic": "shared",
            "hardware": {"gpu": "NVIDIA GB10", "count": 1, "memory_gib": 128},
        },
    },
    "workloads": {"balanced": {"dataset": "random", "prompt_tokens": 1000, "concurrency": 4}},
}


def faults_of(document: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse_config(document)
    assert str(caught.value).split("\n") == [str(fault) for fault in caught.value.faults]
    return [str(fault) for fault in caught.value.faults]


def faults_of_target(**keys: Any) -> list[str]:
    return faults_of({"version": 1, "targets": {"x": keys}})


def test_reads_every_key_of_the_design_example() -> None:
    config = parse_config(DESIGN)
    qwen36, rented = config.targets["qwen36"], config.targets["rented"]

    assert config.default_target == "qwen36"
    assert (qwen36.name, qwen36.launch, qwen36.executable) == ("qwen36", "vllm", "/opt/vllm/bin/vllm")
    assert qwen36.model == "nvidia/Qwen3.6-35B-A3B-NVFP4"
    assert qwen36.args == {"quantization": "modelopt", "moe-backend": "marlin", "max-num-seqs": 32}
    assert qwen36.env == {"CUTE_DSL_ARCH": "sm_121a"}
    assert qwen36.speculative == {"method": "mtp", "moe_backend": "triton"}
    assert (qwen36.k, qwen36.ready_timeout_s) == (3, 1200)
    assert qwen36.resident == {"gpu-memory-utilization": 0.35}
    assert rented == Target(
        name="rented",
        launch="attach",
        urls=((0, "http://10.0.0.5:8000"), (3, "http://10.0.0.5:8001")),
        api_key_env="SPARK_API_KEY",
        traffic="shared",
        hardware=Hardware("NVIDIA GB10", 1, 128),
    )
    assert config.workloads == {"balanced": {"dataset": "random", "prompt_tokens": 1000, "concurrency": 4}}


def test_a_file_without_targets_is_fine() -> None:
    assert parse_config({"version": 1}) == Config()
    assert parse_config({"version": 1, "targets": None, "workloads": None}) == Config()


def test_environment_values_become_texts() -> None:
    env = {
        "A": 1,
        "B": "1",
        "C": "",
        "D": "-1",
        "E": True,
        "F": "expandable_segments:True",
        "G": '{"a":{"b":1}}',
    }
    target = parse_targets({"x": {"launch": "sim", "env": env}})["x"]

    assert target.env == env | {"A": "1", "E": "1"}


@pytest.mark.parametrize("url", ["http://h:8000", "http://h:8000/", "http://h:8000/v1", "http://h:8000/v1/"])
def test_a_url_is_the_server_s_root(url: str) -> None:
    assert parse_targets({"x": {"launch": "attach", "url": url}})["x"].urls == ((None, "http://h:8000"),)


def test_a_docker_target_has_an_image_and_mounts() -> None:
    keys = {"launch": "docker", "image": "vllm/vllm-openai", "k": 3, "mounts": ["./a:/a:ro"]}
    target = parse_targets({"x": keys})["x"]

    assert (target.launch, target.k, target.image, target.mounts) == (
        *("docker", 3, "vllm/vllm-openai"),
        ("./a:/a:ro",),
    )


def test_a_command_is_written_as_a_line_or_as_words() -> None:
    keys = {"launch": "command", "start": "./serve.sh 'a b' {port}", "stop": ["./stop.sh", "{port}"]}
    commands = parse_targets({"x": keys})["x"].commands

    assert commands == Commands(("./serve.sh", "a b", "{port}"), (), ("./stop.sh", "{port}"))


def test_a_recipe_has_overrides_for_its_placeholders() -> None:
    keys = {"launch": "recipe", "recipe": "./r.yaml", "overrides": {"max_model_len": 4096}}
    target = parse_targets({"x": keys})["x"]

    assert target.recipe == "./r.yaml"
    assert target.overrides == {"max_model_len": 4096}


def test_how_many_servers_may_be_up_is_two_or_what_the_file_says() -> None:
    assert parse_config({"version": 1}).max_resident == 2
    assert parse_config({"version": 1, "max_resident": 1}).max_resident == 1
    assert faults_of({"version": 1, "max_resident": 0}) == [
        "max_resident: 0 is not a whole number above 0; give how many servers may be up at once"
    ]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([1], "[1] is not a mapping of keys; start with version: 1, then targets:"),
        ("targets", "'targets' is not a mapping of keys; start with version: 1, then targets:"),
        ({}, "version is missing; write version: 1 at the top"),
        ({"version": 2}, "version: 2 is not a known version of this file; write version: 1"),
        ({"version": "1"}, "version: '1' is not a known version of this file; write version: 1"),
        ({"version": True}, "version: true is not a known version of this file; write version: 1"),
        (
            {"version": 1, "target": {}},
            (
                "target: is not a known key; did you mean targets? "
                "valid keys are version, default_target, max_resident, targets, workloads"
            ),
        ),
        (
            {"version": 1, "targets": ["x"]},
            "targets: ['x'] is not a mapping; write each of the targets under a name of its own",
        ),
        (
            {"version": 1, "targets": {"a/b": {"launch": "sim"}}},
            "targets.a/b: 'a/b' is not a name for one of the targets; use letters, digits, ._-",
        ),
        (
            {"version": 1, "targets": {3: {"launch": "sim"}}},
            "targets.3: 3 is not a name for one of the targets; use letters, digits, ._-",
        ),
        (
            {"version": 1, "default_target": "slo", "targets": {"slow": {"launch": "sim"}}},
            "default_target: 'slo' is not one of the targets; did you mean slow? targets are slow",
        ),
        (
            {"version": 1, "default_target": "slow"},
            "default_target: 'slow' is not one of the targets; there are no targets",
        ),
        (
            {"version": 1, "default_target": None, "targets": {"slow": {"launch": "sim"}}},
            "default_target: an empty value is not one of the targets; targets are slow",
        ),
        (
            {"version": 1, "workloads": {"w": 3}},
            "workloads.w: 3 is not a mapping; give keys of a load, such as output_tokens: 256",
        ),
        (
            {"version": 1, "workloads": {"w": {"thinking": "on"}}},
            "workloads.w.thinking: 'on' is not true or false",
        ),
        (
            {"version": 1, "workloads": {"w": {"sampling": 3}}},
            "workloads.w.sampling: 3 is not 'greedy', 'server' or a mapping",
        ),
        (
            {"version": 1, "workloads": {"w": {"dataset": "random"}}},
            (
                "workloads.w: dataset='random' needs prompt_tokens: say how long the prompts are, such as "
                "prompt_tokens=1000"
            ),
        ),
        (
            {"version": 1, "workloads": {"w": {"prompt_token": 3}}},
            (
                "workloads.w.prompt_token: is not a known key; did you mean prompt_tokens? valid "
                "keys are prompt_tokens, "
                "output_tokens, depth, system_prompt, ignore_eos, concurrency, request_rate, burstiness, "
                "requests, slo, "
                "dataset, "
                "seed, messages, "
                "tools, endpoint, thinking, "
                "sampling, body, prefix_cache, queueing"
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_document(document: Any, text: str) -> None:
    assert faults_of(document) == [text]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "targets.x: launch is missing; give one of vllm, docker, recipe, command, attach, sim"),
        (
            {"launch": "vlm"},
            (
                "targets.x.launch: 'vlm' is not a launch kind; did you mean vllm? "
                "valid are vllm, docker, recipe, command, attach, sim"
            ),
        ),
        (
            {"launch": ["vllm"]},
            (
                "targets.x.launch: ['vllm'] is not a launch kind; did you mean vllm? "
                "valid are vllm, docker, recipe, command, attach, sim"
            ),
        ),
        (
            {"launch": "vllm", "modle": "m"},
            (
                "targets.x.modle: is not a known key; did you mean model? "
                "valid keys are launch, executable, model, args, env, speculative, k, resident, "
                "ready_timeout_s, silence_timeout_s, memory_floor_gib"
            ),
        ),
        (
            {"launch": "vllm", "url": "http://h:1"},
            (
                "targets.x.url: is for launch: command and attach, not for launch: vllm, "
                "whose keys are launch, executable, model, args, env, speculative, k, resident, "
                "ready_timeout_s, silence_timeout_s, memory_floor_gib"
            ),
        ),
        (
            {"launch": "sim", "executable": "/x"},
            (
                "targets.x.executable: is for launch: vllm and recipe, not for launch: sim, "
                "whose keys are launch, model, args, env, speculative, k, resident, ready_timeout_s, "
                "silence_timeout_s, memory_floor_gib"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1", "args": {}},
            (
                "targets.x.args: is for launch: vllm, docker, recipe, command and sim, not for launch: "
                "attach, whose keys are launch, model, k, ready_timeout_s, silence_timeout_s, url, "
                "api_key_env, traffic, hardware, probe"
            ),
        ),
        (
            {"launch": "attach"},
            "targets.x: url is missing; give the root of the running server, such as http://127.0.0.1:8000",
        ),
        (
            {"launch": "sim", "model": 3},
            "targets.x.model: 3 is not a text; give a model's name or its folder",
        ),
        (
            {"launch": "vllm", "executable": ""},
            "targets.x.executable: '' is not a text; give vllm's path, or leave it out for the one on PATH",
        ),
        (
            {"launch": "sim", "k": "three"},
            (
                "targets.x.k: 'three' is not a whole number of 0 or more; give "
                "num_speculative_tokens, 0 for none"
            ),
        ),
        (
            {"launch": "sim", "k": True},
            "targets.x.k: true is not a whole number of 0 or more; give num_speculative_tokens, 0 for none",
        ),
        (
            {"launch": "sim", "k": None},
            (
                "targets.x.k: an empty value is not a whole number of 0 or more; give "
                "num_speculative_tokens, 0 for none"
            ),
        ),
        (
            {"launch": "sim", "ready_timeout_s": 0},
            "targets.x.ready_timeout_s: 0 is not a number above 0; give seconds, such as 900",
        ),
        (
            {"launch": "sim", "args": ["--x"]},
            "targets.x.args: ['--x'] is not a mapping; give vLLM options by name, such as max-num-seqs: 32",
        ),
        (
            {"launch": "sim", "args": {"port": "http"}},
            (
                "targets.x.args.port: 'http' is not a port; "
                "give a whole number from 1 to 65535, or leave it out for a free one"
            ),
        ),
        (
            {"launch": "sim", "resident": None},
            (
                "targets.x.resident: an empty value is not a mapping; "
                "give vLLM options by name, such as max-num-seqs: 32"
            ),
        ),
        (
            {"launch": "sim", "env": "A=1"},
            "targets.x.env: 'A=1' is not a mapping; give variables by name, such as CUTE_DSL_ARCH: sm_121a",
        ),
        (
            {"launch": "sim", "env": {"A B": "1"}},
            (
                "targets.x.env.A B: is not the name of an environment variable; use letters, "
                "digits and underscores"
            ),
        ),
        (
            {"launch": "sim", "env": {"A": None}},
            'targets.x.env.A: has no value; write "" for an empty one, or leave the variable out',
        ),
        (
            {"launch": "sim", "env": {"A": ["secret"]}},
            "targets.x.env.A: has a value that is no text, number, true or false; put it in quotes",
        ),
        (
            {"launch": "sim", "speculative": "mtp"},
            "targets.x.speculative: 'mtp' is not a mapping; write {method: mtp}, and the draft tokens as k:",
        ),
        (
            {"launch": "sim", "speculative": {"num_speculative_tokens": "3"}},
            (
                "targets.x.speculative: num_speculative_tokens: '3' is not a whole number of 0 or more; "
                "give the number of draft tokens as k"
            ),
        ),
        (
            {"launch": "attach", "url": "10.0.0.5:8000"},
            (
                "targets.x.url: '10.0.0.5:8000' is not the URL of a server; give its root, such "
                "as http://127.0.0.1:8000"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:99999"},
            (
                "targets.x.url: 'http://h:99999' is not the URL of a server; give its root, such "
                "as http://127.0.0.1:8000"
            ),
        ),
        (
            {"launch": "attach", "url": "http://me:secret@h:1"},
            (
                "targets.x.url: holds a user name or password; "
                "put the key into an environment variable, named by api_key_env:"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1/?a=1"},
            (
                "targets.x.url: 'http://h:1/?a=1' is not the root of a server; "
                "leave out everything from the ? or # on"
            ),
        ),
        ({"launch": "attach", "url": {}}, "targets.x.url: {} names no server; give a URL, or one per k"),
        (
            {"launch": "attach", "url": {"three": "http://h:1"}},
            "targets.x.url.three: 'three' is not a k; give URLs by k, such as 3: http://127.0.0.1:8000",
        ),
        (
            {"launch": "attach", "url": {3: 8000}},
            "targets.x.url.3: 8000 is not the URL of a server; give its root, such as http://127.0.0.1:8000",
        ),
        (
            {"launch": "attach", "url": "http://h:1", "api_key_env": "sk-secret"},
            (
                "targets.x.api_key_env: is not the name of an environment variable; give its "
                "name, never the key itself"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1", "traffic": "some"},
            (
                "targets.x.traffic: 'some' is not one of 'exclusive', 'shared'; shared spares a "
                "server that others use"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1", "hardware": "GB10"},
            (
                "targets.x.hardware: 'GB10' is not a mapping; write {gpu: NVIDIA GB10, count: 1, "
                "memory_gib: 128}"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1", "probe": ["ssh", 3]},
            (
                "targets.x.probe: ['ssh', 3] is not a command; give what runs another one where the server "
                "is, such as [ssh, -o, BatchMode=yes, spark2]"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1", "probe": "ssh s", "hardware": {"gpu": "GB10"}},
            (
                "targets.x.probe: and hardware both say what the server's machine is; keep one, probe reads "
                "it there"
            ),
        ),
        (
            {"launch": "attach", "url": "http://h:1", "hardware": {"count": 1}},
            "targets.x.hardware: gpu is missing; give the name that nvidia-smi shows on the server's machine",
        ),
        (
            {"launch": "attach", "url": "http://h:1", "hardware": {"gpu": "GB10", "count": 0}},
            "targets.x.hardware.count: 0 is not a whole number above 0",
        ),
        (
            {"launch": "attach", "url": "http://h:1", "hardware": {"gpu": "GB10", "memory": 128}},
            (
                "targets.x.hardware.memory: is not a known key; did you mean memory_gib? "
                "valid keys are gpu, count, memory_gib"
            ),
        ),
        (
            {"launch": "docker", "model": "m"},
            (
                "targets.x: image is missing; give the container image that holds vLLM, such as "
                "vllm/vllm-openai:v0.24.0"
            ),
        ),
        (
            {"launch": "recipe"},
            "targets.x: recipe is missing; give the path of a recipe's YAML file",
        ),
        (
            {"launch": "command"},
            (
                "targets.x: start is missing; give the command that starts the server, such as "
                '"./serve.sh {port}"'
            ),
        ),
        (
            {"launch": "command", "start": "./serve.sh"},
            (
                "targets.x: url is missing, and start: has no {port}; give the server's root as url:, or "
                "let start: take the port that is chosen for it"
            ),
        ),
        (
            {"launch": "command", "start": "serve {port} {kk}"},
            (
                "targets.x.start: has the placeholder {kk}; valid are {port}, {host}, {k}, {model}, "
                "{speculative_config}, {args}, {nonce}"
            ),
        ),
        (
            {"launch": "command", "start": "serve '{port}"},
            (
                'targets.x.start: "serve \'{port}" cannot be split into words (no closing quotation); give a '
                'line or a list of words, such as ["sparkrun", "run", "qwen36", "--port", "{port}"]'
            ),
        ),
        (
            {"launch": "command", "start": "serve {port}", "stop": []},
            (
                "targets.x.stop: [] is not a command; give a line or a list of words, such as "
                '["sparkrun", "run", "qwen36", "--port", "{port}"]'
            ),
        ),
        (
            {"launch": "docker", "image": "i", "mounts": ["/a"]},
            (
                "targets.x.mounts.0: '/a' is not a mount; give HOST:CONTAINER or HOST:CONTAINER:ro, such as "
                "./templates:/templates:ro"
            ),
        ),
        (
            {"launch": "docker", "image": "i", "mounts": "/a:/a"},
            (
                "targets.x.mounts: '/a:/a' is not a list; give HOST:CONTAINER or HOST:CONTAINER:ro, such as "
                "./templates:/templates:ro"
            ),
        ),
        (
            {"launch": "docker", "image": "i", "mounts": ["/var/run/docker.sock:/var/run/docker.sock"]},
            (
                "targets.x.mounts.0: would hand docker's socket, and with it this machine, to the server; "
                "leave it out"
            ),
        ),
        (
            {"launch": "sim", "memory_floor_gib": -1},
            (
                "targets.x.memory_floor_gib: -1 is not a number of 0 or more; give GiB that must stay "
                "available, 0 for no floor"
            ),
        ),
        (
            {"launch": "docker", "k": -1, "image": "i"},
            "targets.x.k: -1 is not a whole number of 0 or more; give num_speculative_tokens, 0 for none",
        ),
    ],
)
def test_what_is_wrong_with_a_target(keys: dict[str, Any], text: str) -> None:
    assert faults_of_target(**keys) == [text]


def test_a_target_that_is_no_mapping_is_named() -> None:
    assert faults_of({"version": 1, "targets": {"x": None}}) == [
        "targets.x: an empty value is not a mapping; give the keys of a target, at least launch:"
    ]


def test_a_long_value_is_cut() -> None:
    assert faults_of_target(launch="sim", k="x" * 200) == [
        (
            f"targets.x.k: '{'x' * 56}... is not a whole number of 0 or more; give "
            f"num_speculative_tokens, 0 for none"
        )
    ]


def test_all_faults_are_told_at_once() -> None:
    document = {"version": 3, "targets": {"x": {"launch": "sim", "k": -1, "modle": 1}, "y": {}}, "extra": 1}

    assert [fault.split(":")[0] for fault in faults_of(document)] == [
        "extra",
        "version",
        "targets.x.modle",
        "targets.x.k",
        "targets.y",
    ]
