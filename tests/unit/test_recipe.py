"""Recipes as people publish them; each case is a file in tests/data/recipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sparkperf.adapters.recipe_file import read_recipe
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.logfault import fatal_reason
from pytest_sparkperf.core.recipe import Rendered, for_variant, parse_recipe, render_recipe
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant

DATA = Path(__file__).parents[1] / "data" / "recipes"
M = "acme/spark-test-7b"


def rendered(name: str, **overrides: Any) -> Rendered:
    path = next(DATA.glob(f"{name}_*.yaml"))
    return render_recipe(read_recipe(path), overrides, {})


def of(document: dict[str, Any], environ: dict[str, str] | None = None, **overrides: Any) -> Rendered:
    return render_recipe(parse_recipe(document, "r"), overrides, environ or {})


def test_doubled_braces_are_halved_in_a_file_of_version_2_as_well() -> None:
    served = rendered("F02").served

    assert json.loads(served.values("diffusion-config")[0]) == {"canvas_length": 256}
    assert json.loads(served.values("override-generation-config")[0]) == {"max_new_tokens": None}
    assert served.values("max-model-len") == ("auto",)


def test_json_in_a_default_is_one_argument_as_it_stands() -> None:
    served = rendered("F03").served

    assert served.values("speculative-config") == (
        '{"method": "mtp", "num_speculative_tokens": 3, "moe_backend": "triton"}',
    )
    assert served.speculative == {"method": "mtp", "num_speculative_tokens": 3, "moe_backend": "triton"}
    assert json.loads(served.values("compilation-config")[0])["custom_ops"] == ["all"]


def test_values_of_the_environment_are_texts_and_an_empty_one_is_set() -> None:
    assert rendered("F05").env == {
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
        "VLLM_MARLIN_USE_ATOMIC_ADD": "1",
        "VLLM_B12X_W4A16_FORCE_TILE_CONFIG": "",
        "VLLM_USE_MEGA_AOT_ARTIFACT": "-1",
        "TILELANG_CLEANUP_TEMP_FILES": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "VLLM_DISTRIBUTED_EXECUTOR_CONFIG": '{"placement_group_options":{"strategy":"SPREAD"}}',
    }


def test_duplicate_keys_two_names_and_underscores_are_taken_as_meant() -> None:
    found = rendered("F06")

    assert found.served.values("served-model-name") == ("gx10", "spark-test-7b")
    assert found.served.served_name == "gx10"
    assert found.served.values("moe-backend") == ("auto",)
    assert found.env == {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUTE_DSL_ARCH": "sm_121a"}
    assert found.notes == (
        "mods are not applied: the image must hold them already (mods/fix-chat-template)",
        "env.HF_HUB_OFFLINE is given twice: its last value is used",
        "env.TRANSFORMERS_OFFLINE is given twice: its last value is used",
    )


def test_blanks_behind_a_backslash_are_no_arguments() -> None:
    assert rendered("F08").served.words == (
        *("vllm", "serve", M, "--port", "8000"),
        "--enable-prefix-caching",
    )


def test_the_command_is_the_command_field_and_unknown_keys_are_noted() -> None:
    found = rendered("F09")

    assert found.served.values("port") == ("8000",)
    assert found.served.model == M
    assert found.container == f"vllm/vllm-openai:nightly-aarch64@sha256:{'a' * 64}"
    assert found.revision == "925d7be6c14c6c9442ef83e8f05b5a3c39304f69"
    assert found.notes == ("executor_config is ignored", "variants is ignored", "benchmark is ignored")


def test_a_recipe_of_another_server_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        rendered("F11")

    assert str(caught.value) == (
        "recipe 'Test-7B' starts 'uvicorn server:app --host', which is not vLLM; measure its server by "
        "launch: attach"
    )


def test_comments_are_dropped_braces_and_all() -> None:
    found = rendered("F14")

    assert found.served.words[:3] == ("vllm", "serve", M)
    assert found.served.speculative == {"method": "dspark", "num_speculative_tokens": 7}


def test_assignments_before_the_program_become_its_environment() -> None:
    found = rendered("F15")

    assert found.env == {
        "SGLANG_ENABLE_SPEC_V2": "1",
        "OMP_NUM_THREADS": "2",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
    }
    assert found.shell is None
    assert found.served.words == ("vllm", "serve", M, "--port", "8000")


def test_overrides_win_over_defaults_and_may_name_each_other() -> None:
    document = {"command": "vllm serve {model} --port {port}", "defaults": {"port": 1, "model": "{base}-x"}}

    assert of(document, base="m", port=7).served.words == ("vllm", "serve", "m-x", "--port", "7")


def test_the_format_dialect_is_read_in_version_1() -> None:
    document = {
        "recipe_version": "1",
        "command": "vllm serve m --x 'a{{b}}' --speculative-config '{{\"a\":{{\"k\":{n}}}}}'",
        "defaults": {"n": 3},
    }

    assert of(document).served.words == (
        *("vllm", "serve", "m", "--x", "a{b}", "--speculative-config"),
        '{"a":{"k":3}}',
    )


def test_single_braces_of_version_1_are_taken_where_only_they_make_json() -> None:
    document = {"recipe_version": "1", "command": 'vllm serve m --c \'{"a":{"b":1}}\''}

    assert of(document).served.values("c") == ('{"a":{"b":1}}',)


def test_without_a_command_the_defaults_are_the_options() -> None:
    defaults = {
        "port": 8000,
        "served_model_name": "a b",
        "enable_x": True,
        "off": False,
        "tensor_parallel": 2,
    }

    assert of({"model": "m", "defaults": defaults}).served.words == (
        *("vllm", "serve", "m", "--port", "8000", "--served-model-name", "a", "b", "--enable-x"),
        *("--tensor-parallel-size", "1"),
    )


def test_on_one_machine_nothing_of_a_cluster_is_left() -> None:
    document = {
        "command": "vllm serve m -tp {tensor_parallel} --distributed-executor-backend ray --nnodes 2",
        "defaults": {"tensor_parallel": 2},
    }

    assert of(document).served.words == ("vllm", "serve", "m", "-tp", "1")
    assert of(document, tensor_parallel=2).served.words == ("vllm", "serve", "m", "-tp", "2")


def test_variables_in_the_environment_are_filled_in_and_missing_ones_left_out() -> None:
    env = {"HF_TOKEN": "$HF_TOKEN", "B": "${X}/b", "C": "$NO"}
    found = of({"model": "m", "env": env}, {"HF_TOKEN": "hf-secret", "X": "x"})

    assert found.env == {"HF_TOKEN": "hf-secret", "B": "x/b"}
    assert found.notes == ("env C names a variable that is not set: left out",)


def test_a_command_that_takes_a_shell_keeps_its_text() -> None:
    found = of({"command": "cd /x &&\nvllm serve m --port {port} | tee log", "defaults": {"port": 1}})

    assert found.shell == "cd /x &&\nvllm serve m --port 1 | tee log"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "recipe 'r' is not a mapping of keys; name a recipe's YAML file"),
        ({"env": [1]}, "recipe 'r': env: is not a mapping; give names and values"),
        ({"env": {"A": [1]}}, "recipe 'r': env.A: is no variable with a text, number, true or false"),
        ({"name": "x"}, "recipe 'r' has neither a command nor a model; it starts nothing"),
        (
            {"model": "m", "cluster_only": True},
            "recipe 'r' is for several machines; let its own launcher start it, with launch: command",
        ),
        (
            {"model": "m", "min_nodes": 2},
            "recipe 'r' is for several machines; let its own launcher start it, with launch: command",
        ),
        (
            {"model": "m", "command": "vllm serve m --x {y}", "defaults": {"port": 1}},
            (
                "recipe 'r' has the placeholder {y}, and nothing gives it a value; add it to overrides: of "
                "the target; known are model, port"
            ),
        ),
        (
            {"command": "vllm serve 'm"},
            "recipe 'r': a single quote in the command is never closed; close it",
        ),
    ],
)
def test_what_cannot_be_used_says_why(document: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(document)

    assert str(caught.value) == text


def changed(command: str, *, k: int | None = None, **keys: Any) -> tuple[str, ...]:
    target = Target("t", "recipe", recipe="r", args=FrozenMap(keys))
    return for_variant(of({"command": command}), make_variant(target, k=k)).served.words


def test_k_is_merged_into_the_recipe_s_own_speculative_config() -> None:
    command = (
        'vllm serve m --speculative-config \'{"method":"eagle3","model":"d","num_speculative_tokens":5}\''
    )

    assert changed(command)[-1] == '{"method":"eagle3","model":"d","num_speculative_tokens":5}'
    assert changed(command, k=2)[-1] == '{"method":"eagle3","model":"d","num_speculative_tokens":2}'
    assert changed(command, k=0) == ("vllm", "serve", "m")


def test_k_without_a_speculative_config_means_mtp() -> None:
    assert changed("vllm serve m", k=3)[-2:] == (
        "--speculative-config",
        '{"method":"mtp","num_speculative_tokens":3}',
    )


def test_dotted_keys_are_part_of_the_speculative_config() -> None:
    command = "vllm serve m --speculative-config.method mtp --speculative-config.num_speculative_tokens 3"

    assert changed(command, k=1)[-1] == '{"method":"mtp","num_speculative_tokens":1}'


def test_options_of_the_target_replace_those_of_the_recipe_and_null_removes() -> None:
    command = "vllm serve m --max_num_seqs 4 -tp=2 --no-enable-prefix-caching"

    assert changed(command, **{"max-num-seqs": 8, "tensor-parallel-size": None}) == (
        *("vllm", "serve", "m", "--no-enable-prefix-caching"),
        *("--max-num-seqs", "8"),
    )
    assert changed(command, **{"enable-prefix-caching": True})[-1] == "--enable-prefix-caching"


def test_options_of_a_shell_s_command_cannot_be_changed() -> None:
    with pytest.raises(ConfigError) as caught:
        changed("vllm serve m | tee log", k=2)

    assert str(caught.value) == (
        "target 't': the recipe's command takes a shell, so that no option of it can be changed; write it as "
        "one plain command, or change its placeholders by overrides:"
    )


def test_a_file_that_is_no_recipe_is_named(tmp_path: Path) -> None:
    missing, broken = tmp_path / "no.yaml", tmp_path / "broken.yaml"
    broken.write_text("a: [1")
    for path, text in (
        (
            missing,
            f"recipe {str(missing)!r} cannot be read: No such file or directory; name a recipe's YAML file",
        ),
        (broken, f"recipe {str(broken)!r} is not YAML: while parsing a flow sequence"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_recipe(path)
        assert str(caught.value).startswith(text)


def test_json_that_lost_its_quotes_on_the_way_is_told_with_its_option_and_value() -> None:
    said = (DATA / "F12_argv_mangled.txt").read_text()

    assert fatal_reason(said) == said.strip()
    assert "argument --speculative-config/-sc: Value {method: mtp, num_speculative_tokens: 1}" in said
