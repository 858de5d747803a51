"""What a step reads of the weights, from a checkpoint's config and the headers of its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sparkperf.adapters.checkpoint import read_gb_per_token
from pytest_sparkperf.core.active_weights import Tensor, gb_per_token

MOE = {"num_experts": 256, "num_experts_per_tok": 8}
LAYERS = (
    Tensor("model.embed_tokens.weight", "BF16", 10**9),
    Tensor("model.layers.0.self_attn.q_proj.weight", "BF16", 2 * 10**9),
    Tensor("model.layers.0.mlp.experts.0.up_proj.weight", "U8", 16 * 10**9),
    Tensor("model.layers.0.mlp.shared_expert.up_proj.weight", "BF16", 10**8),
    Tensor("model.visual.blocks.0.weight", "BF16", 10**9),
    Tensor("mtp.layers.0.mlp.experts.0.up_proj.weight", "BF16", 10**9),
    Tensor("lm_head.weight", "F32", 10**9),
)


def test_experts_count_by_the_share_that_a_token_chooses_and_what_no_step_reads_does_not() -> None:
    expected = pytest.approx(2 + 16 * 8 / 256 + 0.1 + 0.5)

    assert gb_per_token(MOE, LAYERS) == expected
    assert gb_per_token({"text_config": MOE}, LAYERS) == expected


@pytest.mark.parametrize("config", [{}, {"num_experts": 256}, {"num_experts_per_tok": 8}])
def test_experts_of_an_unknown_number_leave_it_unknown(config: dict[str, Any]) -> None:
    assert gb_per_token(config, LAYERS) is None


def test_what_is_quantized_while_it_loads_has_an_unknown_size() -> None:
    packed = {**MOE, "quantization_config": {"quant_method": "modelopt"}}

    assert gb_per_token(MOE, LAYERS, quantized_on_load=True) is None
    assert gb_per_token(packed, LAYERS, quantized_on_load=True) == gb_per_token(MOE, LAYERS)


def test_nothing_reads_nothing() -> None:
    assert gb_per_token(MOE, ()) is None


def write_checkpoint(folder: Path, tensors: dict[str, Any], config: object = MOE) -> None:
    header = json.dumps(tensors).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


TENSOR = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8, 16]}


def test_a_checkpoint_is_read_by_its_headers_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"__metadata__": {"format": "pt"}, "lm_head.weight": TENSOR})

    assert read_gb_per_token(tmp_path, quantized_on_load=False) == pytest.approx(8e-9)


@pytest.mark.parametrize(
    ("tensors", "config"), [({"lm_head.weight": {"dtype": "BF16"}}, MOE), ({"lm_head.weight": TENSOR}, [])]
)
def test_a_checkpoint_that_cannot_be_read_tells_nothing(
    tmp_path: Path, tensors: dict[str, Any], config: object
) -> None:
    write_checkpoint(tmp_path, tensors, config)

    assert read_gb_per_token(tmp_path, quantized_on_load=False) is None


def test_a_folder_without_a_config_tells_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"lm_head.weight": TENSOR})
    (tmp_path / "config.json").unlink()

    assert read_gb_per_token(tmp_path, quantized_on_load=False) is None
