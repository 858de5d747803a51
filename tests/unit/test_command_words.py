from __future__ import annotations

from typing import Any

from pytest_sparkperf.core.command_words import fill
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.targets import Commands, Target
from pytest_sparkperf.core.variant import make_variant


def filled(*words: str, k: int | None = None, **args: Any) -> tuple[str, ...]:
    target = Target("c", "command", commands=Commands(("{args} {k}",)), args=FrozenMap(args), model="m")
    return fill(words, make_variant(target, k=k), port=8001, host="127.0.0.1", nonce="abc")


def test_words_are_filled_in_for_one_start() -> None:
    assert filled("serve", "{model}", "{host}:{port}", "k={k}", "--name=x-{nonce}", k=3) == (
        *("serve", "m", "127.0.0.1:8001", "k=3", "--name=x-abc"),
    )


def test_args_alone_become_words_and_within_a_word_they_are_quoted_for_a_shell() -> None:
    options: dict[str, Any] = {"max-num-seqs": 4, "served-model-name": "a b"}

    assert filled("run", "{args}", **options) == (
        *("run", "--max-num-seqs", "4", "--served-model-name", "a b"),
    )
    assert filled("sh", "-c", "exec vllm {args}", **options) == (
        *("sh", "-c", "exec vllm --max-num-seqs 4 --served-model-name 'a b'"),
    )


def test_the_speculative_config_is_left_out_where_nothing_speculates() -> None:
    words = ("serve", "--speculative-config", "{speculative_config}", "--x")

    assert filled(*words, k=3) == (
        *("serve", "--speculative-config", '{"method":"mtp","num_speculative_tokens":3}', "--x"),
    )
    assert filled(*words, k=0) == ("serve", "--x")
    assert filled(*words) == ("serve", "--x")


def test_a_k_that_nobody_names_is_0_and_other_braces_stay() -> None:
    assert filled("{k}", "{{.ID}}", '{"a":1}') == ("0", "{{.ID}}", '{"a":1}')
