"""What servers say they do not do as asked, in the wordings of real logs and of vLLM's source."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sparkperf.core.logwarnings import log_warnings

DATA = Path(__file__).parents[1] / "data" / "logs"
AT = "(APIServer pid=1) WARNING 11-30 16:02:57 [interface.py:1458] "


@pytest.mark.parametrize("name", ["cpu_k1", "cpu_k2_stopped", "h200_k3"])
def test_fields_that_do_nothing_beside_drafts_are_named(name: str) -> None:
    assert log_warnings((DATA / f"{name}.log").read_text())["ignored_with_drafts"] == ("min_p", "logit_bias")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("min_p, logit_bias, and min_tokens parameters won't work with speculative decoding.", 3),
        ("min_p parameter does not work with speculative decoding.", 1),
    ],
)
def test_lists_of_them_are_taken_apart(body: str, names: int) -> None:
    found = log_warnings(f"{AT}{body}\n")["ignored_with_drafts"]

    assert found == ("min_p", "logit_bias", "min_tokens")[:names]


def test_variables_that_this_vllm_does_not_know_are_named_once() -> None:
    line = f"{AT}Unknown vLLM environment variable detected: VLLM_USE_MARLN\n"

    assert log_warnings(line * 2) == {"unknown_variables": ("VLLM_USE_MARLN",)}


def test_options_that_will_go_are_told_in_the_server_s_words() -> None:
    words = "--disable-cascade-attn is deprecated and has no effect since cascade attention was removed."
    library = "/opt/x.py:138: FutureWarning: `torch.distributed.reduce_op` is deprecated\n"

    assert log_warnings(f"{library}{AT}{words}\n") == {"deprecated": (words,)}


def test_a_server_that_warns_of_nothing_has_no_warnings() -> None:
    assert log_warnings((DATA / "kv_two_lines.log").read_text()) == {}
