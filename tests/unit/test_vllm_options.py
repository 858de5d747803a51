"""vLLM options as a mapping: names, faults and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.vllm_options import (
    arguments,
    named_options,
    option_faults,
    option_name,
    speculative_config,
    speculative_mapping,
)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("max-model-len", "max-model-len"),
        ("max_model_len", "max-model-len"),
        ("--max_model_len", "max-model-len"),
        ("-tp", "tensor-parallel-size"),
        ("sc", "speculative-config"),
        ("compilation_config.cudagraph_mode", "compilation-config.cudagraph_mode"),
        ("-cc.cudagraph_mode", "compilation-config.cudagraph_mode"),
    ],
)
def test_spellings_of_one_option_have_one_name(written: str, name: str) -> None:
    assert option_name(written) == name


def test_a_negated_switch_is_the_switch() -> None:
    assert named_options({"no-enable-prefix-caching": True, "no_async_scheduling": False, "no-x": None}) == {
        "enable-prefix-caching": False,
        "async-scheduling": True,
        "x": None,
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ("--x",)),
        (False, ("--no-x",)),
        (None, ()),
        (32, ("--x", "32")),
        (0.35, ("--x", "0.35")),
        (0.02, ("--x", "0.02")),
        ("off", ("--x", "off")),
        ("", ("--x", "")),
        ("a b", ("--x", "a b")),
        ("-1", ("--x=-1",)),
        (-1, ("--x=-1",)),
        (["a", 2, True], ("--x", "a", "--x", "2", "--x", "true")),
        ([], ()),
        ({"a": {"b": None}}, ("--x", '{"a":{"b":null}}')),
        ([{"a": 1}], ("--x", '{"a":1}')),
    ],
)
def test_arguments_of_a_value(value: Any, words: tuple[str, ...]) -> None:
    assert arguments({"x": value}) == words


def test_an_option_that_takes_several_values_has_them_after_one_flag() -> None:
    options = {
        "served-model-name": ["a", "b"],
        "cudagraph-capture-sizes": [1, 2, 4],
        "middleware": ["m", "n"],
    }

    assert arguments(options) == (
        *("--served-model-name", "a", "b"),
        *("--cudagraph-capture-sizes", "1", "2", "4"),
        *("--middleware", "m", "--middleware", "n"),
    )


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"max num seqs": 1},
            (
                "max num seqs",
                "is not the name of a vLLM option; write it as on the command line, such as max-num-seqs",
            ),
        ),
        (
            {"max-num-seqs": 1, "max_num_seqs": 2},
            ("max_num_seqs", "is the same option as max-num-seqs; keep one of them"),
        ),
        ({"x": True, "no-x": True}, ("no-x", "is the same option as x; keep one of them")),
        (
            {"x": float("nan")},
            (
                "x",
                (
                    "nan cannot be an option's value; give a text, a number, true, false, null, "
                    "a list or a mapping"
                ),
            ),
        ),
        ({"model": "m"}, ("model", "is not given among args; name the model by the key model")),
        (
            {"host": "0.0.0.0"},
            (
                "host",
                "'0.0.0.0' would let other machines in; leave host out, servers listen on 127.0.0.1 only",
            ),
        ),
        (
            {"port": 70000},
            (
                "port",
                "70000 is not a port; give a whole number from 1 to 65535, or leave it out for a free one",
            ),
        ),
        (
            {"port": True},
            (
                "port",
                "True is not a port; give a whole number from 1 to 65535, or leave it out for a free one",
            ),
        ),
        (
            {"speculative_config": "{method: mtp}"},
            (
                "speculative_config",
                (
                    "'{method: mtp}' is not a speculative config; "
                    'write a mapping such as {"method": "mtp"}, and the number of draft tokens as k'
                ),
            ),
        ),
    ],
)
def test_what_is_wrong_with_an_option(options: dict[str, Any], fault: tuple[str, str]) -> None:
    assert list(option_faults(options)) == [fault]


def test_all_faults_are_found_at_once() -> None:
    assert [key for key, _ in option_faults({"model": "m", "x": 1, "port": 0, "host": "::"})] == [
        "model",
        "port",
        "host",
    ]


def test_usable_options_have_no_fault() -> None:
    options = {
        "host": "127.0.0.1",
        "port": 8000,
        "x": None,
        "speculative-config": '{"method": "mtp"}',
        "a.b_c": [1],
    }

    assert list(option_faults(options)) == []


def test_speculative_config_is_gathered_from_every_spelling() -> None:
    options = named_options({"speculative_config": '{"method": "mtp"}', "sc.moe_backend": "triton"})

    assert speculative_config(options) == {"method": "mtp", "moe_backend": "triton"}


def test_speculative_config_keys_have_underscores() -> None:
    assert speculative_mapping({"moe-backend": "triton"}) == {"moe_backend": "triton"}


def test_draft_tokens_that_are_no_number_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        speculative_mapping({"num_speculative_tokens": "three"})

    assert str(caught.value) == (
        "num_speculative_tokens: 'three' is not a whole number of 0 or more; give the number "
        "of draft tokens as k"
    )
