"""What can be asked of a server that others use, and what its counters say."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.exposition import difference, parse_exposition
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.shared import check_shared, counter_figures
from pytest_sparkperf.core.targets import Target, Traffic
from pytest_sparkperf.core.variant import Variant, make_variant

ELSE = "keep others off it and say traffic: exclusive"
WHERE = "target 'rented', which says traffic: shared"


def variant(traffic: Traffic = "shared") -> Variant:
    return make_variant(Target("rented", "attach", urls=((None, "http://h:1"),), traffic=traffic))


def refused(**keywords: Any) -> str:
    check_shared(parse_mark(keywords), variant("exclusive"))
    with pytest.raises(ConfigError) as caught:
        check_shared(parse_mark(keywords), variant())
    return str(caught.value)


@pytest.mark.parametrize(
    "keywords",
    [{}, {"min_decode": 1, "max_ttft_ms": 9, "max_tpot_ms": 9, "max_e2el_ms": 9}, {"max_error_rate": 0.1}],
)
def test_what_the_counters_tell_may_be_limited(keywords: dict[str, Any]) -> None:
    check_shared(parse_mark(keywords), variant())


@pytest.mark.parametrize("gate", ["min_output_throughput", "min_prefill", "max_itl_ms", "max_ttft_p90_ms"])
def test_what_they_do_not_tell_is_refused(gate: str) -> None:
    assert refused(**{gate: 10}) == (
        f"{gate} cannot be judged on {WHERE}: its counters tell decode_tok_s, ttft_ms, tpot_ms, e2el_ms as "
        f"means over all requests; limit one of these, or {ELSE}"
    )


def test_requests_at_once_are_refused() -> None:
    assert refused(concurrency=4) == (
        f"concurrency=4 cannot be measured on {WHERE}: requests of others would fill the batch too, and "
        f"nothing would tell; measure concurrency=1 there, or {ELSE}"
    )
    assert refused(requests=100) == (
        f"requests=100 as one run cannot be measured on {WHERE}: its segments would hold the requests of "
        f"others; leave requests out, or {ELSE}"
    )
    assert refused(against={"k": 0}, same_output=True) == (
        f"same_output cannot be asked of {WHERE}: it sends several requests at once; {ELSE}"
    )


def test_stored_runs_say_nothing_about_the_load_of_others() -> None:
    assert refused(max_slowdown=0.1) == (
        f"max_slowdown cannot be judged on {WHERE}: what others send is another load in each run; compare "
        f"with against=, or {ELSE}"
    )


def test_a_compared_metric_must_be_counted_too() -> None:
    check_shared(parse_mark({"against": {"k": 0}, "min_speedup": 1.1}), variant())
    assert refused(against={"k": 0}, max_slowdown={"prefill_tok_s": 0.2}) == (
        f"max_slowdown[prefill_tok_s] cannot be judged on {WHERE}: its counters tell decode_tok_s, ttft_ms, "
        f"tpot_ms, e2el_ms as means over all requests; limit one of these, or {ELSE}"
    )


def figures(before: str, after: str) -> dict[str, float]:
    found = counter_figures(difference(parse_exposition(before), parse_exposition(after)))
    return {name: value for name, value in found.items() if value is not None}


def histogram(name: str, count: int, total_s: float) -> str:
    return f"vllm:{name}_count {count}\nvllm:{name}_sum {total_s}\n"


def test_figures_are_means_over_the_requests_between_two_scrapes() -> None:
    before = histogram("time_to_first_token_seconds", 10, 5.0)
    after = histogram("time_to_first_token_seconds", 14, 6.0)

    assert figures(before, after) == {"ttft_ms": 250.0}
    assert figures(before, before) == {}, "nobody was answered"


def test_the_older_name_of_the_token_time_is_known() -> None:
    name = "time_per_output_token_seconds"

    assert figures(histogram(name, 0, 0.0), histogram(name, 100, 1.0)) == {
        "tpot_ms": 10.0,
        "decode_tok_s": 100.0,
    }
