"""Finding a target by name."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import SIMULATOR, Target, find_target

QWEN, SLOW = Target("qwen36", "vllm"), Target("slow", "sim")


def test_finds_by_name() -> None:
    assert find_target({"qwen36": QWEN, "slow": SLOW}, "slow") is SLOW


def test_the_only_target_needs_no_name() -> None:
    assert find_target({"slow": SLOW}, None) is SLOW


@pytest.mark.parametrize(
    ("targets", "name", "text"),
    [
        (
            {"qwen36": QWEN, "slow": SLOW},
            None,
            (
                "no target is named; targets are qwen36, slow; name one by --sparkperf-target, "
                "by target= in the test "
                "or by default_target: in sparkperf.yaml"
            ),
        ),
        (
            {"qwen36": QWEN, "slow": SLOW},
            "qwen35",
            "target 'qwen35' is not known; did you mean qwen36? targets are qwen36, slow",
        ),
        ({"slow": SLOW}, "llama", "target 'llama' is not known; targets are slow"),
        ({}, "llama", "target 'llama' is not known; there are no targets; describe it in sparkperf.yaml"),
    ],
)
def test_an_unknown_target_lists_the_known_ones(
    targets: dict[str, Target], name: str | None, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        find_target(targets, name)

    assert str(caught.value) == text


def test_secrets_in_env_stay_out_of_repr() -> None:
    assert "hf-secret" not in repr(Target("x", "vllm", env=FrozenMap({"HF_TOKEN": "hf-secret"})))


def test_the_simulator_is_a_target() -> None:
    assert Target(name="sim", launch="sim") == SIMULATOR
