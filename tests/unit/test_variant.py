"""Variants: a target with a test's keywords applied, and the arguments it is served with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_sparkperf.core.document import parse_targets
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Commands, Hardware, Target
from pytest_sparkperf.core.variant import Variant, beside_another, make_variant, serve_arguments

QWEN: dict[str, Any] = {
    "launch": "vllm",
    "executable": "/opt/vllm/bin/vllm",
    "model": "nvidia/Qwen3.6-35B-A3B-NVFP4",
    "args": {"quantization": "modelopt", "moe-backend": "marlin", "max-model-len": 65536, "max-num-seqs": 32},
    "env": {"CUTE_DSL_ARCH": "sm_121a"},
    "speculative": {"method": "mtp", "moe_backend": "triton"},
    "k": 3,
    "resident": {"gpu-memory-utilization": 0.35, "kv-cache-memory-bytes": 4294967296},
}


def target_of(name: str, keys: dict[str, Any]) -> Target:
    return parse_targets({name: keys})[name]


def qwen(**changes: Any) -> Target:
    keys = {key: value for key, value in (QWEN | changes).items() if value is not None}
    return target_of("qwen36", keys)


def rented(**changes: Any) -> Target:
    urls = {0: "http://10.0.0.5:8000", 3: "http://10.0.0.5:8001"}
    return target_of("rented", {"launch": "attach", "url": urls} | changes)


def speculative_of(variant: Variant) -> Any:
    words = serve_arguments(variant)
    if "--speculative-config" not in words:
        return None
    return json.loads(words[words.index("--speculative-config") + 1])


def test_arguments_of_the_design_example() -> None:
    assert serve_arguments(make_variant(qwen())) == (
        "nvidia/Qwen3.6-35B-A3B-NVFP4",
        *("--quantization", "modelopt"),
        *("--moe-backend", "marlin"),
        *("--max-model-len", "65536"),
        *("--max-num-seqs", "32"),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3,"moe_backend":"triton"}'),
    )


def test_resident_options_apply_where_two_servers_are_up() -> None:
    variant = make_variant(qwen(args={"gpu-memory-utilization": 0.9}), k=0)

    assert serve_arguments(variant)[1:] == ("--gpu-memory-utilization", "0.9")
    assert serve_arguments(beside_another(variant))[1:] == (
        *("--gpu-memory-utilization", "0.35"),
        *("--kv-cache-memory-bytes", "4294967296"),
    )


def test_k_zero_removes_the_speculative_config() -> None:
    variant = make_variant(qwen(), k=0)

    assert variant.k == 0
    assert speculative_of(variant) is None


def test_k_without_a_speculative_config_is_mtp() -> None:
    assert serve_arguments(make_variant(qwen(speculative=None, k=None, args={}), k=3)) == (
        "nvidia/Qwen3.6-35B-A3B-NVFP4",
        "--speculative-config",
        '{"method":"mtp","num_speculative_tokens":3}',
    )


def test_no_speculation_named_anywhere_is_k_zero() -> None:
    assert make_variant(qwen(speculative=None, k=None)).k == 0


def test_a_draft_model_keeps_its_method_open() -> None:
    variant = make_variant(qwen(speculative={"model": "some/draft"}), k=2)

    assert speculative_of(variant) == {"model": "some/draft", "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    ("k", "args", "number"),
    [
        (None, {"speculative-config": {"num_speculative_tokens": 2}}, 2),
        (1, {"speculative-config": {"num_speculative_tokens": 2}}, 1),
        (None, {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 2}'}, 2),
        (None, {"speculative-config.num_speculative_tokens": 5}, 5),
        (4, None, 4),
        (None, None, 3),
    ],
)
def test_the_number_of_draft_tokens_closest_to_the_test_wins(k: int | None, args: Any, number: int) -> None:
    variant = make_variant(qwen(), k=k, args=args)

    assert variant.k == number
    assert speculative_of(variant)["num_speculative_tokens"] == number
    assert "speculative-config" not in variant.args


def test_a_speculative_config_among_args_is_merged_into_the_target_s() -> None:
    variant = make_variant(qwen(), args={"speculative-config": {"method": "ngram", "prompt-lookup-max": 4}})

    assert speculative_of(variant) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "moe_backend": "triton",
        "prompt_lookup_max": 4,
    }


def test_the_number_may_stand_in_the_target_s_speculative_config() -> None:
    variant = make_variant(qwen(k=None, speculative={"method": "mtp", "num_speculative_tokens": 2}))

    assert variant.k == 2


def test_args_are_merged_by_option_and_null_removes() -> None:
    variant = make_variant(qwen(), k=0, args={"moe_backend": None, "max_num_seqs": 4, "enforce-eager": True})

    assert serve_arguments(variant)[1:] == (
        *("--quantization", "modelopt"),
        *("--max-model-len", "65536"),
        *("--max-num-seqs", "4"),
        "--enforce-eager",
    )


def test_env_is_merged_by_name_and_none_removes() -> None:
    changed = make_variant(qwen(), env={"A": 1, "B": True, "C": "", "CUTE_DSL_ARCH": None})

    assert changed.env == {"A": "1", "B": "1", "C": ""}
    assert make_variant(qwen()).env == {"CUTE_DSL_ARCH": "sm_121a"}


def test_port_is_a_fact_for_the_launcher_and_no_argument() -> None:
    variant = make_variant(qwen(args={"port": 8001, "host": "127.0.0.1"}), k=0)

    assert variant.port == 8001
    assert serve_arguments(variant) == ("nvidia/Qwen3.6-35B-A3B-NVFP4",)


@pytest.mark.parametrize(
    ("served", "name"),
    [(None, "nvidia/Qwen3.6-35B-A3B-NVFP4"), ("gx10", "gx10"), (["gx10", "spark"], "gx10")],
)
def test_requests_use_the_first_served_name(served: Any, name: str) -> None:
    assert make_variant(qwen(args={"served_model_name": served})).served_name == name


def test_model_and_executable_of_the_test_win() -> None:
    variant = make_variant(qwen(), model="other/model", executable="/venv/bin/vllm")

    assert (variant.model, variant.served_name, variant.executable) == ("other/model",) * 2 + (
        "/venv/bin/vllm",
    )


def test_equal_variants_are_one_key_however_they_were_written() -> None:
    same = {
        make_variant(qwen()),
        make_variant(qwen(), k=3),
        make_variant(qwen(), args={"max_num_seqs": 32}),
        make_variant(qwen(), args={"speculative-config": {"num_speculative_tokens": 3}}),
    }

    assert len(same) == 1


def test_any_difference_is_another_variant() -> None:
    different = {
        make_variant(qwen()),
        make_variant(qwen(), k=0),
        make_variant(qwen(), args={"enforce-eager": True}),
        make_variant(qwen(), args={"enforce-eager": 1}),
        make_variant(qwen(), env={"A": "1"}),
        make_variant(qwen(), model="other/model"),
        make_variant(qwen(), executable="/venv/bin/vllm"),
    }

    assert len(different) == 7


def test_the_simulator_needs_no_model() -> None:
    variant = make_variant(target_of("slow", {"launch": "sim", "args": {"slowdown": 2.0}}), k=3)

    assert serve_arguments(variant) == (
        *("--slowdown", "2.0"),
        *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}'),
    )


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({}, "qwen36 k=3"),
        ({"k": 0}, "qwen36 k=0"),
        ({"args": {"moe_backend": "triton"}}, "qwen36 k=3 --moe-backend triton"),
        ({"args": {"moe_backend": None}}, "qwen36 k=3 without moe-backend"),
        ({"args": {"api-key": "sk-1"}, "env": {"HF_TOKEN": "hf-1"}}, "qwen36 k=3 --api-key *** env HF_TOKEN"),
        ({"model": "m", "executable": "/e"}, "qwen36 k=3 model=m executable=/e"),
    ],
)
def test_describes_what_sets_it_apart_and_no_secret(keywords: dict[str, Any], text: str) -> None:
    assert make_variant(qwen(), **keywords).describe() == text


def test_repr_shows_no_environment() -> None:
    assert "hf-secret" not in repr(make_variant(qwen(env={"HF_TOKEN": "hf-secret"})))


def test_attached_server_is_found_by_k() -> None:
    hardware = {"gpu": "NVIDIA GB10", "memory_gib": 128}
    target = rented(api_key_env="SPARK_API_KEY", traffic="shared", hardware=hardware, model="qwen")
    variant = make_variant(target, k=3)

    assert variant == Variant(
        target="rented",
        launch="attach",
        model="qwen",
        served_name="qwen",
        k=3,
        url="http://10.0.0.5:8001",
        api_key_env="SPARK_API_KEY",
        traffic="shared",
        hardware=Hardware("NVIDIA GB10", 1, 128),
        ready_timeout_s=0.0,  # it runs already
    )
    assert variant.url_for_k() == "http://10.0.0.5:8001"
    assert variant.describe() == "rented k=3"


def test_the_target_s_k_chooses_the_url_where_the_test_names_none() -> None:
    assert make_variant(rented(k=0)).url_for_k() == "http://10.0.0.5:8000"


@pytest.mark.parametrize("k", [None, 0, 3])
def test_one_url_serves_any_k(k: int | None) -> None:
    variant = make_variant(rented(url="http://127.0.0.1:8000/v1/"), k=k)

    assert (variant.k, variant.url_for_k()) == (k, "http://127.0.0.1:8000")


def test_the_only_url_needs_no_k() -> None:
    assert make_variant(rented(url={3: "http://h:1"})).k == 3


@pytest.mark.parametrize(
    ("target", "keywords", "text"),
    [
        (
            rented(),
            {"k": 2},
            (
                "target 'rented' has no URL for k=2; it has k=0 (http://10.0.0.5:8000), k=3 "
                "(http://10.0.0.5:8001)"
            ),
        ),
        (
            rented(),
            {},
            (
                "target 'rented' has a URL per k: k=0 (http://10.0.0.5:8000), k=3 (http://10.0.0.5:8001); "
                "say which by k= in the test or k: in the target"
            ),
        ),
        (
            rented(),
            {"k": 0, "args": {"x": 1}},
            (
                "target 'rented': args cannot change a server that already runs (launch: attach); "
                "leave it out, or use a target with launch: vllm, docker, recipe, command or sim"
            ),
        ),
        (
            qwen(k=None),
            {},
            (
                "target 'qwen36' has a speculative config and no number of draft tokens; "
                "give it by k: in the target or by k= in the test (0 for none)"
            ),
        ),
        (
            qwen(model=None),
            {},
            (
                "target 'qwen36': launch: vllm needs a model; give it by model: in "
                "sparkperf.yaml or by model= in the test"
            ),
        ),
        (
            Target("s", "sim"),
            {"executable": "/x"},
            (
                "target 's': executable cannot be set with launch: sim; it names the program of launch: vllm "
                "or recipe"
            ),
        ),
        (
            qwen(),
            {"image": "i"},
            (
                "target 'qwen36': image cannot be set with launch: vllm; it names the container of "
                "launch: docker or recipe"
            ),
        ),
        (
            Target("d", "docker", image="i"),
            {},
            (
                "target 'd': launch: docker needs a model; give it by model: in sparkperf.yaml or by model= "
                "in the test"
            ),
        ),
        (
            Target("c", "command", commands=Commands(("serve", "{port}"))),
            {"k": 3},
            (
                "target 'c': k=3 cannot reach the server, since start: has neither {k} nor "
                "{speculative_config}; put one of them into it, or say by k: which k it starts"
            ),
        ),
        (
            Target("c", "command", commands=Commands(("serve", "{port}"))),
            {"args": {"max-num-seqs": 4}},
            (
                "target 'c': args cannot reach the server, since start: has no {args}; put {args} into it "
                "where the options belong, or leave args out"
            ),
        ),
    ],
)
def test_what_cannot_be_made_says_why(target: Target, keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_variant(target, **keywords)

    assert str(caught.value) == text


def test_only_an_attached_variant_has_a_url() -> None:
    with pytest.raises(ConfigError) as caught:
        make_variant(qwen()).url_for_k()

    assert str(caught.value) == "target 'qwen36' has no URL; only a target with launch: attach has one"


def test_a_docker_variant_knows_its_image_and_a_test_may_name_another() -> None:
    target = Target("d", "docker", model="m", image="vllm:1", mounts=("/a:/a:ro",))

    assert make_variant(target).image == "vllm:1"
    assert make_variant(target).mounts == ("/a:/a:ro",)
    other = make_variant(target, image="vllm:2")
    assert (other.image, other.describe()) == ("vllm:2", "d k=0 image=vllm:2")


def test_a_recipe_keeps_its_own_k_until_somebody_names_one() -> None:
    target = Target("r", "recipe", recipe="/r.yaml")

    assert make_variant(target).k is None
    assert make_variant(target).speculative == {}
    assert make_variant(target, k=0).k == 0
    assert make_variant(target, k=2).speculative == {"num_speculative_tokens": 2}


def test_null_in_the_args_of_a_recipe_is_kept_to_remove_an_option_of_the_recipe() -> None:
    assert make_variant(Target("r", "recipe"), args={"chat-template": None}).args == {"chat-template": None}


def test_a_started_command_is_told_k_where_it_has_a_place_for_it() -> None:
    target = Target("c", "command", commands=Commands(("serve", "{port}", "{k}")), k=1)

    assert make_variant(target).k == 1
    assert make_variant(target, k=3).k == 3


def test_a_command_may_have_a_url_per_k() -> None:
    urls = ((0, "http://127.0.0.1:1"), (3, "http://127.0.0.1:2"))
    target = Target("c", "command", commands=Commands(("serve",)), urls=urls)

    assert make_variant(target, k=3).url == "http://127.0.0.1:2"


def test_secrets_are_no_words_of_the_command_line() -> None:
    variant = make_variant(
        Target("v", "vllm", model="m", args=FrozenMap({"api-key": "sk", "hf-token": "hf"}))
    )

    assert serve_arguments(variant) == ("m",)
