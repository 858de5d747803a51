"""Prometheus text as vLLM, its older releases and llama.cpp send it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_sparkperf.core.exposition import Scrape, difference, parse_exposition

DATA = Path(__file__).parent.parent / "data" / "metrics"

DRAFTS = "vllm:spec_decode_num_drafts_total"
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def scrape(name: str) -> Scrape:
    # newline="" keeps the bytes' own line ends
    with (DATA / f"{name}.prom").open(encoding="utf-8", newline="") as file:
        return parse_exposition(file.read())


def _write(name: str, labels: Mapping[str, str], value: str) -> str:
    """Write one sample as the format prescribes: backslash, newline and quote are escaped, nothing else."""
    pairs = (
        '{}="{}"'.format(key, text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'))
        for key, text in labels.items()
    )
    return f"{name}{{{','.join(pairs)}}} {value}\n"


_LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True),
    st.text(st.sampled_from('ab{},="\\\n\r\t# \u2028é') | st.characters(exclude_categories=["Cs"])),
    max_size=4,
)


@given(labels=_LABELS, value=st.floats(allow_nan=False, allow_infinity=False))
@example(labels={"model_name": '/models/hf/a "b" {c}, d=1\\x', "engine": "\\n\n\\"}, value=1.0)
def test_any_label_value_survives_writing_and_parsing(labels: dict[str, str], value: float) -> None:
    found = parse_exposition(_write("a:metric_total", labels, repr(value)))

    assert found == Scrape({"a:metric_total": {tuple(sorted(labels.items())): value}})


@given(st.text())
def test_no_text_raises(text: str) -> None:
    found = parse_exposition(text)

    assert found.malformed <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("m 1", 1.0),
        ("m\t 1.5 ", 1.5),
        ("m{} 6.491797e+06", 6_491_797.0),
        ("m 9.75E-06", 9.75e-06),
        ("m -.5", -0.5),
        ("m +2.", 2.0),
        ("m 3 1395066363000", 3.0),
        ('m{le="+Inf",} 4', 4.0),
        ('m{a="b"} 5 # {trace_id="x"} 0.67 1.1', 5.0),
        ("m 6\r", 6.0),
        ("  m 7", 7.0),
        ("m NaN", None),
        ("m +Inf", None),
        ("m -inf", None),
        ("m 1e999", None),
    ],
)
def test_every_form_of_a_value_is_read(text: str, value: float | None) -> None:
    found = parse_exposition(text)

    assert found.malformed == 0
    assert found.total("m") == value


@pytest.mark.parametrize(
    "text",
    [
        "<html><body>502 Bad Gateway</body></html>",
        "m",
        "m{a=b} 1",
        'm{a="b} 1',
        'm{a="b" "c"} 1',
        "m 1_000",
        "m one",
        "m 0x10",
        "1m 1",
    ],
)
def test_what_is_no_sample_is_counted_and_not_read(text: str) -> None:
    assert parse_exposition(text) == Scrape({}, {}, malformed=1)


def test_comments_and_empty_lines_are_no_samples() -> None:
    found = parse_exposition("# HELP m Text with {braces} 1\n# TYPE m counter\n\n# anything\n#\n# EOF\n")

    assert found == Scrape({}, {"m": "counter"}, malformed=0)


def test_an_empty_body_has_no_totals() -> None:
    assert scrape("empty") == Scrape()
    assert scrape("empty").total(DRAFTS) is None
    assert scrape("empty").by_label(PER_POSITION, "position") == {}


def test_a_total_is_the_sum_of_all_engines() -> None:
    found = scrape("dp2")

    assert found.total(DRAFTS) == 150
    assert found.by_label(DRAFTS, "engine") == {"0": 100, "1": 50}
    assert found.by_label(PER_POSITION, "position") == {"0": 125, "1": 87, "2": 58}


def test_created_twins_are_never_part_of_a_total() -> None:
    found = scrape("dp2")

    assert found.samples["vllm:spec_decode_num_drafts_created"]
    assert found.total("vllm:spec_decode_num_drafts") is None
    assert found.total(DRAFTS) == 150


def test_braces_commas_and_quotes_in_a_model_path_stay_in_the_label() -> None:
    found = scrape("path_label")

    assert found.by_label(DRAFTS, "model_name") == {'/models/hf/a "b" {c}, d=1\\x': 100}
    assert found.malformed == 0


def test_series_are_found_whatever_model_name_they_carry() -> None:
    found = scrape("two_model_names")
    seconds = found.total("vllm:time_to_first_token_seconds_sum")
    count = found.total("vllm:time_to_first_token_seconds_count")

    assert found.total(DRAFTS) == 100
    assert (seconds, count) == (1.2, 4)
    assert seconds is not None
    assert count is not None
    assert seconds / count == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["old_cache_names", "new_cache_names"])
def test_cache_metrics_are_found_under_old_and_new_names(name: str) -> None:
    found = scrape(name)

    assert found.values("vllm:kv_cache_usage_perc") == (0.25,)
    assert found.total("vllm:prefix_cache_hits_total") == 50
    assert found.total("vllm:prefix_cache_queries_total") == 200


def test_of_an_old_and_a_new_name_only_the_new_one_counts() -> None:
    body = "vllm:gpu_prefix_cache_hits_total 50\nvllm:prefix_cache_hits_total 50\n"

    assert parse_exposition(body).total("vllm:prefix_cache_hits_total") == 50


def test_a_server_with_another_prefix_is_read_and_says_so() -> None:
    found = scrape("llamacpp_names")

    assert found.total(DRAFTS) == 100
    assert found.spelling(DRAFTS) == "llamacpp:spec_decode_num_drafts_total"
    assert found.spelling("vllm:prompt_tokens_total") is None


def test_nan_and_infinity_are_missing_and_not_zero() -> None:
    found = scrape("nan")

    assert found.total("vllm:spec_decode_draft_acceptance_rate") is None
    assert found.total("vllm:kv_cache_usage_perc") is None
    assert found.values("vllm:kv_cache_usage_perc") == ()
    assert found.total(DRAFTS) == 6_512_044


def test_a_total_with_one_missing_engine_is_missing() -> None:
    found = parse_exposition('m_total{engine="0"} 5\nm_total{engine="1"} NaN\n')

    assert found.total("m_total") is None
    assert found.by_label("m_total", "engine") == {"0": 5}


def test_the_later_of_two_equal_series_counts() -> None:
    assert parse_exposition('m{a="1",b="2"} 5\nm{b="2",a="1"} 6\n').total("m") == 6


@pytest.mark.parametrize(
    ("name", "is_counter"),
    [
        ("vllm:generation_tokens_total", True),
        ("vllm:generation_tokens_created", False),
        ("vllm:time_to_first_token_seconds_bucket", True),
        ("vllm:time_to_first_token_seconds_count", True),
        ("vllm:time_to_first_token_seconds_sum", False),
        ("vllm:num_requests_running", False),
        ("not_there_total", True),
        ("not_there", False),
    ],
)
def test_counters_are_told_from_gauges(name: str, is_counter: bool) -> None:
    assert scrape("h200_k3_after").is_counter(name) is is_counter


def test_the_difference_of_two_captures_is_what_was_generated_between_them() -> None:
    delta = difference(scrape("h200_k3_before"), scrape("h200_k3_after"))

    assert not delta.restarted
    assert delta.total("vllm:generation_tokens_total") == 9634 - 8192
    assert delta.total("vllm:prompt_tokens_total") == 1408 - 558
    assert delta.by_label(PER_POSITION, "position") == {"0": 387, "1": 316, "2": 219}
    assert delta.total("vllm:not_there_total") is None


def test_a_series_that_appears_later_counts_from_zero() -> None:
    delta = difference(
        parse_exposition("a_total 1\n"), parse_exposition('a_total 1\nb_total{position="0"} 7\n')
    )

    assert (delta.restarted, delta.total("a_total"), delta.total("b_total")) == (False, 0, 7)


def test_without_a_first_scrape_there_is_no_difference() -> None:
    delta = difference(scrape("empty"), scrape("h200_k3_after"))

    assert (delta.restarted, delta.total(DRAFTS)) == (False, None)


def test_without_a_second_scrape_there_is_no_difference_and_no_restart() -> None:
    delta = difference(scrape("h200_k3_before"), scrape("empty"))

    assert (delta.restarted, delta.total(DRAFTS)) == (False, None)


def test_a_value_that_is_missing_on_one_side_has_no_difference() -> None:
    delta = difference(parse_exposition("a_total NaN\n"), parse_exposition("a_total 5\n"))

    assert (delta.restarted, delta.total("a_total")) == (False, None)


def test_a_gauge_may_fall_without_being_a_restart() -> None:
    before = "# TYPE g gauge\ng 5\na_total 1\n"
    after = "# TYPE g gauge\ng 3\na_total 2\n"
    delta = difference(parse_exposition(before), parse_exposition(after))

    assert (delta.restarted, delta.total("g"), delta.total("a_total")) == (False, -2, 1)


@pytest.mark.parametrize(
    ("before", "after", "reset"),
    [
        (
            "process_start_time_seconds 1.5e9\na_total 1\n",
            "process_start_time_seconds 1.6e9\na_total 2\n",
            "process_start_time_seconds changed",
        ),
        ('a_created{e="0"} 1.5e9\na_total 1\n', 'a_created{e="0"} 1.6e9\na_total 2\n', "a_created changed"),
        ('a_total{e="0"} 5\na_total{e="1"} 5\n', 'a_total{e="0"} 4\na_total{e="1"} 9\n', "a_total fell"),
        ('a_total{e="0"} 5\na_total{e="1"} 5\n', 'a_total{e="0"} 9\n', "a_total lost a series"),
        ("# TYPE h histogram\nh_count 5\n", "# TYPE h histogram\nh_count 4\n", "h_count fell"),
    ],
)
def test_a_restart_is_noticed_and_leaves_no_figure(before: str, after: str, reset: str) -> None:
    delta = difference(parse_exposition(before), parse_exposition(after))

    assert (delta.restarted, delta.reset) == (True, reset)
    assert delta.total("a_total") is None
    assert delta.by_label("a_total", "e") == {}


def test_two_captures_of_different_servers_are_a_restart() -> None:
    delta = difference(scrape("cpu_off_before"), scrape("cpu_off_after"))
    other = difference(scrape("cpu_off_before"), scrape("cpu_k1_after"))

    assert (delta.restarted, delta.total("vllm:generation_tokens_total")) == (False, 3620 - 2048)
    assert other.reset == "process_start_time_seconds changed"
