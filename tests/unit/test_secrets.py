from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.core.secrets import is_secret_name, redact, secret_values
from pytest_sparkperf.core.serve_words import redacted

DATA = Path(__file__).parents[1] / "data" / "logs"


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


def test_what_stands_where_secrets_do_is_hidden_although_nobody_told_us() -> None:
    text = (DATA / "startup_secrets.log").read_text()

    assert redact(text, ()).splitlines() == [
        (
            "INFO 08-24 10:00:00 [api_utils.py:273] non-default args: {'model_tag': 'acme/spark-test-7b', "
            "'hf_token': ***, 'api_key': ***, 'port': 8000}"
        ),
        (
            "+ docker run -e HF_TOKEN=*** -e VLLM_API_KEY=*** vllm-node vllm serve acme/spark-test-7b "
            "--api-key *** --api-key=***"
        ),
        "Authorization: Bearer ***",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Namespace(api_key=['sk-1', 'sk-2'], port=1)", "Namespace(api_key=***, port=1)"),
        ("ModelConfig(hf_token=None, seed=0)", "ModelConfig(hf_token=None, seed=0)"),
        ('{"api_key": "sk-1", "x": 1}', '{"api_key": ***, "x": 1}'),
        ("['vllm', 'serve', '--api-key', 'sk-1']", "['vllm', 'serve', '--api-key', '***']"),
        (
            "max_num_batched_tokens=8192 --max-model-len 4096",
            "max_num_batched_tokens=8192 --max-model-len 4096",
        ),
        ("bearer of news; tokens=5", "bearer of news; tokens=5"),
    ],
)
def test_places_of_secrets_in_other_spellings(text: str, shown: str) -> None:
    assert redact(text, ()) == shown
    assert redact(shown, ()) == shown


def test_words_of_secret_options_are_hidden() -> None:
    words = ("vllm", "serve", "m", "--api-key", "one", "two", "--port", "1", "--hf-token=three", "--x=abcdef")

    assert redacted(words, ["abcdef"]) == (
        *("vllm", "serve", "m", "--api-key", "***", "***", "--port", "1", "--hf-token=***", "--x=***"),
    )
