from __future__ import annotations

import pytest

from pytest_sparkperf.core.secrets import is_secret_name, redact, secret_values
from pytest_sparkperf.core.serve_words import redacted


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "aws_secret_access_key", "DB_PASSWORD", "PGPASSWD"]
)
def test_names_that_say_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["CUTE_DSL_ARCH", "HF_HOME", "PATH", "VLLM_LOGGING_COLOR"])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_secret_values_are_hidden_longest_first_and_plain_words_left() -> None:
    env = {"A_TOKEN": "abcdef", "B_KEY": "abcdef-more", "C_TOKEN": "true", "D_KEY": "1234567", "E": "visible"}
    secrets = secret_values(env, also=["extra-secret", None])

    assert secrets == ("extra-secret", "abcdef-more", "abcdef")
    assert redact("x abcdef-more abcdef visible 1234567", secrets) == "x *** *** visible 1234567"


def test_words_of_secret_options_are_hidden() -> None:
    words = ("vllm", "serve", "m", "--api-key", "one", "two", "--port", "1", "--hf-token=three", "--x=abcdef")

    assert redacted(words, ["abcdef"]) == (
        *("vllm", "serve", "m", "--api-key", "***", "***", "--port", "1", "--hf-token=***", "--x=***"),
    )
