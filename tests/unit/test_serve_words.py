from __future__ import annotations

import pytest

from pytest_sparkperf.core.serve_words import changed, is_vllm, merged_speculation, read_serve_words


def test_a_command_is_split_at_its_options() -> None:
    served = read_serve_words(
        ["vllm", "serve", "m", "-tp", "2", "--a_b", "1", "2", "--no-x", "--c=3", "--flag"]
    )

    assert served.head == ("vllm", "serve", "m")
    assert [(one.name, one.values) for one in served.options] == [
        ("tensor-parallel-size", ("2",)),
        ("a-b", ("1", "2")),
        ("x", ()),
        ("c", ("3",)),
        ("flag", ()),
    ]
    assert (served.model, served.served_name) == ("m", "m")


def test_a_negative_number_is_a_value() -> None:
    assert read_serve_words(["vllm", "serve", "m", "--x", "-1"]).values("x") == ("-1",)


def test_the_old_entry_point_names_its_model_by_an_option() -> None:
    served = read_serve_words(["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"])

    assert served.head == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert served.model == "m"


def test_a_command_without_options_is_all_head() -> None:
    assert read_serve_words(["vllm", "serve", "m"]).options == ()
    assert read_serve_words(["vllm", "serve"]).model is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["vllm", "serve", "m"], True),
        (["/opt/bin/vllm", "serve"], True),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], True),
        (["vllm", "bench"], False),
        (["sglang", "serve"], False),
        ([], False),
    ],
)
def test_what_counts_as_vllm(words: list[str], expected: bool) -> None:
    assert is_vllm(words) is expected


def test_changes_replace_add_and_remove() -> None:
    served = read_serve_words(["vllm", "serve", "m", "--a", "1", "-sc", '{"method":"mtp"}', "--b"])

    assert changed(served, {"a": 2, "b": None, "c": True}, {}).words == (
        "vllm",
        "serve",
        "m",
        "--a",
        "2",
        "--c",
    )
    assert changed(served, {}, None).words == served.words


def test_the_speculative_config_for_a_k() -> None:
    own = {"method": "eagle", "num_speculative_tokens": 5}

    assert merged_speculation(own, {}, None) is None
    assert merged_speculation(own, {}, 0) == {}
    assert merged_speculation(own, {"x": 1}, 2) == {"method": "eagle", "num_speculative_tokens": 2, "x": 1}
    assert merged_speculation({}, {}, 1) == {"method": "mtp", "num_speculative_tokens": 1}
