"""What is offered where tokens arrive in lumps."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.exposition import Scrape, parse_exposition
from pytest_sparkperf.core.lumps import what_remains
from pytest_sparkperf.core.result import RequestResult

LUMP = RequestResult(valid=False, written_s=10.0, first_event_s=12.0, last_event_s=12.0, output_tokens=256)
TPOT = "vllm:request_time_per_output_token_seconds"


def page(requests: int, drafts: int) -> Scrape:
    """Return a scrape after so many requests of 9 ms per token, with 2.5 tokens of each draft accepted."""
    return parse_exposition(
        f"{TPOT}_sum {0.009 * requests}\n{TPOT}_count {requests}\n"
        f"vllm:spec_decode_num_drafts_total {drafts}\nvllm:spec_decode_num_draft_tokens_total {3 * drafts}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {2.5 * drafts}\n"
    )


def test_the_rate_of_whole_requests_and_the_step_by_counters_remain() -> None:
    assert what_remains([LUMP], page(1, 100), page(2, 200)) == (
        "what can be said without the stream's times: 128 tok/s of output over whole requests, 9 ms per "
        "token by the server's own counters, a step of 31.5 ms with 3.5 tokens"
    )


def test_without_drafts_a_step_is_a_token() -> None:
    before, after = (parse_exposition(f"{TPOT}_sum {0.01 * n}\n{TPOT}_count {n}\n") for n in (1, 2))

    assert what_remains([LUMP], before, after).endswith("a step of 10 ms with 1 tokens")


@pytest.mark.parametrize("after", [None, parse_exposition("")])
def test_without_counters_whole_requests_remain(after: Scrape | None) -> None:
    assert what_remains([LUMP], None, after) == (
        "what can be said without the stream's times: 128 tok/s of output over whole requests"
    )


def test_nothing_is_said_of_what_nobody_knows() -> None:
    assert what_remains([RequestResult(valid=False)], None, None) == ""
