"""Acceptance from scrapes, log lines and requests, with the values of real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sparkperf.core.acceptance import (
    Acceptance,
    acceptance_between,
    acceptance_of_requests,
    acceptance_since_start,
    pool,
    pool_intervals,
    pool_requests,
    request_weighted_rate,
    why_no_acceptance,
)
from pytest_sparkperf.core.exposition import Scrape, parse_exposition
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.serverlog import SpecDecodingInterval, spec_decoding_intervals
from pytest_sparkperf.core.stream import StreamReader

DATA = Path(__file__).parent.parent / "data"


def scrape(name: str) -> Scrape:
    return parse_exposition((DATA / "metrics" / f"{name}.prom").read_text(encoding="utf-8"))


def intervals(name: str) -> list[SpecDecodingInterval]:
    return spec_decoding_intervals((DATA / "logs" / f"{name}.log").read_text(encoding="utf-8"))


ONE_ENGINE = Acceptance(100, 300, 210, (90, 70, 50))


@pytest.mark.parametrize(
    ("name", "expected", "rate_pct", "length"),
    [
        ("dp2", Acceptance(150, 450, 270, (125, 87, 58)), 60.0, 2.8),
        ("v0_engine", Acceptance(None, 12792, 8211), 64.19, None),
        ("multi_api_server", Acceptance(40, 120, 90, (38, 30, 22)), 75.0, 3.25),
        ("served_names", ONE_ENGINE, 70.0, 3.1),
        ("two_model_names", ONE_ENGINE, 70.0, 3.1),
        ("path_label", ONE_ENGINE, 70.0, 3.1),
        ("zero_drafts", Acceptance(0, 0, 0, (0, 0, 0)), None, None),
        (
            "nan",
            Acceptance(6_512_044, 19_536_132, 13_000_000, (5_500_000, 4_200_000, 3_300_000)),
            66.54,
            2.996,
        ),
        ("llamacpp_names", Acceptance(100, 300, 150, (80, 50, 20)), 50.0, 2.5),
    ],
)
def test_counters_of_every_release_are_read(
    name: str, expected: Acceptance, rate_pct: float | None, length: float | None
) -> None:
    found = acceptance_since_start(scrape(name))

    assert found == expected
    assert (None if found.rate is None else round(100 * found.rate, 2)) == rate_pct
    assert (None if found.length is None else round(found.length, 3)) == length


def test_rates_per_position_are_shares_of_drafts_over_all_engines() -> None:
    found = acceptance_since_start(scrape("dp2"))

    assert found is not None
    assert found.per_position == pytest.approx((0.8333, 0.58, 0.3867), abs=5e-5)


# (drafts, draft tokens, accepted tokens) are differences of the counters written in the captures.
@pytest.mark.parametrize(
    ("server", "expected", "rate", "length"),
    [
        ("h200_k3", Acceptance(528, 1422, 922, (387, 316, 219)), 0.648, 2.746),
        ("cpu_k3", Acceptance(456, 1368, 889, (369, 307, 213)), 0.650, 2.950),
        ("cpu_k1", Acceptance(747, 747, 577, (577,)), 0.772, 1.772),
    ],
)
def test_two_scrapes_of_a_real_server_give_what_happened_between_them(
    server: str, expected: Acceptance, rate: float, length: float
) -> None:
    found = acceptance_between(scrape(f"{server}_before"), scrape(f"{server}_after"))

    assert found == expected
    assert found.rate is not None
    assert found.length is not None
    assert (round(found.rate, 3), round(found.length, 3)) == (rate, length)
    assert found.k == len(expected.accepted_per_position)


# Totals are printed, and drafts follow exactly. Counts per position come from rates of three decimals: exact
# up to 1,000 drafts an interval, within 1 above; the H200's lines hold up to 1,517.
@pytest.mark.parametrize(
    ("log", "lines", "metrics", "off_by"),
    [
        ("cpu_k1", 14, "cpu_k1_after", 0),
        ("cpu_k3_killed", 56, "cpu_k3_before", 0),
        ("cpu_k3_killed", 76, "cpu_k3_after", 0),
        ("h200_k3", 3, "h200_k3_before", 1),
        ("h200_k3", 4, "h200_k3_after", 1),
    ],
)
def test_pooled_log_lines_equal_the_counters_of_the_same_server(
    log: str, lines: int, metrics: str, off_by: int
) -> None:
    pooled = pool_intervals(intervals(log)[:lines])
    counted = acceptance_since_start(scrape(metrics))

    assert pooled is not None
    assert counted is not None
    assert (pooled.drafts, pooled.draft_tokens, pooled.accepted_tokens) == (
        counted.drafts,
        counted.draft_tokens,
        counted.accepted_tokens,
    )
    assert pooled.accepted_per_position == pytest.approx(counted.accepted_per_position, abs=off_by)
    assert (pooled.source, counted.source) == ("log", "counters")


def test_drafts_that_were_cut_short_are_not_taken_for_full_ones() -> None:
    cut = intervals("h200_k3")[3]
    pooled = pool_intervals([cut])

    assert cut.draft_tokens == 1422
    assert pooled is not None
    assert pooled.drafts == 528  # as the counters say; 1,422 / 3 would be 474


def test_intervals_are_weighted_by_their_tokens() -> None:
    few = SpecDecodingInterval(
        accepted_tokens=9, draft_tokens=9, rate=1.0, length=4.0, per_position=(1, 1, 1)
    )
    many = SpecDecodingInterval(accepted_tokens=300, draft_tokens=900, length=2.0, per_position=(1, 0, 0))

    assert pool_intervals([few, many]) == Acceptance(303, 909, 309, (303, 3, 3), "log")


def test_totals_of_the_v0_engine_are_not_added_up() -> None:
    (total,) = intervals("spec_v0")

    assert pool_intervals([total, total]) == Acceptance(None, 12792, 8211, (), "log")


def test_lines_without_length_leave_the_drafts_unknown() -> None:
    bare = SpecDecodingInterval(accepted_tokens=5, draft_tokens=10, rate=0.5)
    idle = SpecDecodingInterval(accepted_tokens=0, draft_tokens=0)

    assert pool_intervals([bare, idle]) == Acceptance(None, 10, 5, (), "log")
    assert pool_intervals([idle]) == Acceptance(0, 0, 0, (), "log")
    assert pool_intervals([]) is None


def test_drafting_that_never_succeeds_is_zero_and_not_missing() -> None:
    pooled = pool_intervals(intervals("spec_zero"))

    assert pooled == Acceptance(130, 650, 0, (0, 0, 0, 0, 0), "log")
    assert (pooled.rate, pooled.length, pooled.wasted_tokens) == (0.0, 1.0, 650)


def test_requests_pool_by_tokens_and_the_mean_of_rates_is_named_apart() -> None:
    requests = json.loads((DATA / "metrics" / "per_request.json").read_text(encoding="utf-8"))
    counts = [(request["accepted"], request["drafted"]) for request in requests]
    pooled = pool_requests(counts)

    assert pooled == Acceptance(None, 650, 510, (), "requests")
    assert pooled.rate == pytest.approx(0.7846, abs=5e-5)
    assert request_weighted_rate(counts) == pytest.approx(0.70)
    assert request_weighted_rate([(0, 0)]) is None


def test_no_drafts_give_no_rates() -> None:
    found = Acceptance(0, 0, 0, (0, 0, 0))

    assert (found.rate, found.length, found.per_position, found.k) == (None, None, None, 3)


@pytest.mark.parametrize(
    ("found", "k"),
    [
        (Acceptance(10, 30, 5), 3),
        (Acceptance(10, 29, 5), None),  # cut drafts: the quotient is not k
        (Acceptance(None, 30, 5), None),
        (Acceptance(10, 25, 5, (3, 1, 1)), 3),
    ],
)
def test_k_is_known_from_positions_or_a_whole_quotient_only(found: Acceptance, k: int | None) -> None:
    assert found.k == k


def test_a_gap_in_the_positions_leaves_them_out() -> None:
    body = (
        "vllm:spec_decode_num_draft_tokens_total 30\nvllm:spec_decode_num_accepted_tokens_total 9\n"
        "vllm:spec_decode_num_drafts_total 10\n"
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 6\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 3\n'
    )

    assert acceptance_since_start(parse_exposition(body)) == Acceptance(10, 30, 9)


RESTARTED = "no acceptance: the server restarted between the two scrapes"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total {}\nvllm:spec_decode_num_accepted_tokens_total 1\n"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (None, scrape("empty"), "no spec-decode series: /metrics answered with an empty body"),
        (None, scrape("diffusion"), "no speculative decoding: /metrics shows no spec_decode counters"),
        (
            scrape("cpu_off_before"),
            scrape("cpu_off_after"),
            "no speculative decoding: /metrics shows no spec_decode counters",
        ),
        (None, scrape("zero_drafts"), "no acceptance: nothing was drafted"),
        (
            scrape("cpu_k1_after"),
            scrape("cpu_k1_after"),
            "no acceptance: nothing was drafted",
        ),
        (
            scrape("empty"),
            scrape("cpu_k1_after"),
            "no acceptance: the first scrape of /metrics is empty, there is nothing to subtract",
        ),
        (
            scrape("cpu_k1_after"),
            scrape("cpu_k3_after"),
            f"{RESTARTED} (process_start_time_seconds changed)",
        ),
        (
            None,
            parse_exposition(DRAFTED.format("NaN")),
            "no acceptance: a spec_decode counter is not a finite number",
        ),
        (None, parse_exposition(DRAFTED.format("2")), None),
        (scrape("cpu_k1_before"), scrape("cpu_k1_after"), None),
    ],
)
def test_the_reason_for_no_rate_is_told(before: Scrape | None, after: Scrape, reason: str | None) -> None:
    found = acceptance_since_start(after) if before is None else acceptance_between(before, after)

    assert why_no_acceptance(before, after) == reason
    assert ((found.rate if found else None) is None) == (reason is not None)


def test_windows_are_pooled_by_counts() -> None:
    few, many = Acceptance(10, 30, 30, (10, 10, 10)), Acceptance(90, 270, 90, (60, 20, 10))

    assert pool([few, many]) == Acceptance(100, 300, 120, (70, 30, 20))
    assert pool([few, Acceptance(None, 30, 15)]) == Acceptance(None, 60, 45)


def test_a_window_without_counts_leaves_all_unknown() -> None:
    assert pool([]) is None
    assert pool([ONE_ENGINE, None]) is None


def recorded(name: str) -> RequestResult:
    reader = StreamReader("chat")
    reader.feed((DATA / "streams" / "vllm-0.32-cpu" / name).read_bytes(), 1.0)
    return reader.finish(written_s=0.0)


def test_answers_with_metrics_of_their_own_tell_their_acceptance() -> None:
    told = recorded("k3.per_request_metrics_chat.raw")

    found = acceptance_of_requests([told, told])

    assert found == Acceptance(24, 72, 58, (20, 20, 18), "requests")
    # As the server itself prints them for this request.
    assert found.rate == pytest.approx(0.8055555555555556)
    assert found.length == pytest.approx(3.4166666666666665)


def test_one_answer_without_metrics_leaves_all_unknown() -> None:
    silent = recorded("k3.chat_stream_think_usage.raw")

    assert silent.drafted is None
    assert acceptance_of_requests([recorded("k3.per_request_metrics_chat.raw"), silent]) is None
    assert acceptance_of_requests([]) is None


def test_the_counters_of_twelve_prompts_on_an_h200() -> None:
    delta = json.loads((DATA / "metrics" / "h200_k3_delta.json").read_text(encoding="utf-8"))
    counts = {name: int(value) for name, value in delta.items() if "_total" in name}
    positions = tuple(counts[f"vllm:spec_decode_num_accepted_tokens_per_pos_total[{at}]"] for at in range(3))
    found = Acceptance(
        counts["vllm:spec_decode_num_drafts_total"],
        counts["vllm:spec_decode_num_draft_tokens_total"],
        counts["vllm:spec_decode_num_accepted_tokens_total"],
        positions,
    )

    assert found.rate is not None
    assert found.length is not None
    assert (round(found.rate, 3), round(found.length, 3)) == (0.570, 2.711)
    assert sum(positions) == found.accepted_tokens
