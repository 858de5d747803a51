from __future__ import annotations

from pytest_sparkperf.sim.counters import Counters, exposition

GAUGES = {"num_requests_running": 2, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.25}


def page(counters: Counters) -> list[str]:
    return exposition(counters, GAUGES, model_name="tiny", created_s=1796053691.25).splitlines()


def test_drafts_are_counted_by_position() -> None:
    counters = Counters(draft_tokens=3)
    for accepted in (3, 1, 0):
        counters.count_draft(accepted)
    lines = page(counters)

    assert 'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 3.0' in lines
    assert 'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 9.0' in lines
    assert 'vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 4.0' in lines
    per_position = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert [line for line in lines if line.startswith(per_position + "{")] == [
        f'{per_position}{{engine="0",model_name="tiny",position="0"}} 2.0',
        f'{per_position}{{engine="0",model_name="tiny",position="1"}} 1.0',
        f'{per_position}{{engine="0",model_name="tiny",position="2"}} 1.0',
    ]


def test_without_drafts_there_is_no_counter_of_them() -> None:
    assert not [line for line in page(Counters(0)) if "spec_decode" in line]


def test_each_counter_has_help_type_and_its_created_twin() -> None:
    counters = Counters(0)
    counters.generation_tokens = 5
    lines = page(counters)
    start = lines.index("# HELP vllm:generation_tokens_total Number of generation tokens processed.")

    assert lines[start + 1 : start + 6] == [
        "# TYPE vllm:generation_tokens_total counter",
        'vllm:generation_tokens_total{engine="0",model_name="tiny"} 5.0',
        "# HELP vllm:generation_tokens_created Number of generation tokens processed.",
        "# TYPE vllm:generation_tokens_created gauge",
        'vllm:generation_tokens_created{engine="0",model_name="tiny"} 1796053691.25',
    ]


def test_gauges_stand_as_they_are() -> None:
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25' in page(Counters(0))


def test_the_cache_is_told_as_labels() -> None:
    labels = {"block_size": "16", "enable_prefix_caching": "True"}
    text = exposition(Counters(0), GAUGES, model_name="tiny", created_s=1.0, cache_config=labels)

    told = 'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0"} 1.0'
    assert told in text.splitlines()


def test_finished_requests_are_counted_by_reason() -> None:
    counters = Counters(0)
    counters.finished["stop"] += 2
    lines = page(counters)

    assert 'vllm:request_success_total{engine="0",model_name="tiny",finished_reason="stop"} 2.0' in lines
    assert 'vllm:request_success_total{engine="0",model_name="tiny",finished_reason="abort"} 0.0' in lines


def test_histogram_buckets_add_up() -> None:
    counters = Counters(0)
    for value_s in (0.03, 0.04, 9000.0):
        counters.ttft.observe(value_s)
    lines = page(counters)
    name = "vllm:time_to_first_token_seconds"

    # A border belongs to its own bucket.
    assert f'{name}_bucket{{engine="0",model_name="tiny",le="0.02"}} 0.0' in lines
    assert f'{name}_bucket{{engine="0",model_name="tiny",le="0.04"}} 2.0' in lines
    assert f'{name}_bucket{{engine="0",model_name="tiny",le="2560.0"}} 2.0' in lines
    assert f'{name}_bucket{{engine="0",model_name="tiny",le="+Inf"}} 3.0' in lines
    assert f'{name}_count{{engine="0",model_name="tiny"}} 3.0' in lines
    assert f'{name}_sum{{engine="0",model_name="tiny"}} 9000.07' in lines
