"""Where the ceiling of a server comes from: its GPU's name, and its checkpoint where that lies here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.ceiling import Ceiling
from pytest_sparkperf.core.targets import Hardware, Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.experiment.known import Knowledge

PACKED = {"quantization_config": {"quant_method": "modelopt"}}


def ceiling(
    tmp_path: Path, *, gpu: str = "NVIDIA GB10", config: dict[str, Any] | None = None
) -> Ceiling | None:
    """Return the ceiling of an attached server whose model lies here and reads 2 GB per token."""
    tensor = {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2 * 10**9]}
    header = json.dumps({"lm_head.weight": tensor}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (tmp_path / "config.json").write_text(json.dumps(PACKED if config is None else config), encoding="utf-8")
    url = "http://10.0.0.5:8000"
    target = Target("rented", "attach", model=str(tmp_path), urls=((None, url),), hardware=Hardware(gpu, 2))
    server = Server(url, "served", 3, {})
    return Knowledge(tmp_path).ceiling(make_variant(target), server)


def test_gpus_and_checkpoint_give_the_ceiling(tmp_path: Path) -> None:
    found = ceiling(tmp_path)

    assert found == Ceiling(546, 2.0, 3)
    assert found.decode_tok_s == pytest.approx(4 * 546 / 2)


def test_a_checkpoint_that_somebody_may_quantize_on_load_gives_none(tmp_path: Path) -> None:
    assert ceiling(tmp_path, config={}) is None


def test_a_gpu_of_unknown_bandwidth_gives_none(tmp_path: Path) -> None:
    assert ceiling(tmp_path, gpu="NVIDIA Something New") is None


def test_a_simulator_tells_its_own(tmp_path: Path) -> None:
    facts = {"bandwidth_gb_s": 273.0, "gb_per_token": 2.0}
    server = Server("http://127.0.0.1:1", "m", 0, facts, simulated=True)

    assert Knowledge(tmp_path).ceiling(make_variant(Target("s", "sim")), server) == Ceiling(273.0, 2.0, 0)
