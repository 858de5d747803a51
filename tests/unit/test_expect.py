from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.expect import expectation_faults, expectation_form_faults

FACTS = {"moe_backend": "MARLIN", "kv_cache_tokens": (990_000, 977_408), "k": 3, "prefix_caching": False}


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"moe_backend": "MARLIN", "k": 3},
        {"moe_backend": "marlin"},
        {"kv_cache_tokens": 977_408},
        {"kv_cache_tokens": (960_000, 0.02)},
        {"kv_cache_tokens": [977_408, 0]},
        {"prefix_caching": False, "draft_moe_backend": None},
    ],
)
def test_facts_that_are_as_expected(expected: dict[str, Any]) -> None:
    assert list(expectation_faults(expected, FACTS)) == []


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ({"moe_backend": "TRITON"}, "moe_backend: expected 'TRITON', but the server has 'MARLIN'"),
        (
            {"kv_cache_tokens": (950_000, 0.02)},
            "kv_cache_tokens: expected 950,000 within 0.02, but the server has 977408",
        ),
        ({"k": True}, "k: expected True, but the server has 3"),
        ({"prefix_caching": 0}, "prefix_caching: expected 0, but the server has False"),
        (
            {"moe_backnd": "MARLIN"},
            (
                "moe_backnd: expected 'MARLIN', but the server does not tell it; did you mean moe_backend? "
                "it tells k, kv_cache_tokens, moe_backend, prefix_caching"
            ),
        ),
    ],
)
def test_what_is_not_as_expected_says_so(expected: dict[str, Any], text: str) -> None:
    assert list(expectation_faults(expected, FACTS)) == [text]


def test_a_band_is_a_figure_and_a_share() -> None:
    assert list(expectation_form_faults({"a": (1, 0.1), "b": "x"})) == []
    assert list(expectation_form_faults({"a": (1, 2, 3)})) == [
        (
            "expect['a']=(1, 2, 3) is neither a value nor a figure with the share it may be off by; write "
            "(343_699, 0.02)"
        )
    ]
