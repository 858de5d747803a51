"""The sparkperf mark: what its keywords become, how marks merge, and every fault in words."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import (
    Comparison,
    GateSpec,
    Limit,
    MarkError,
    merge_marks,
    metric_of_gate,
    parse_mark,
)
from pytest_sparkperf.core.keywords import KEYWORDS
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.metrics import METRICS

VALID = (
    "valid keywords are target, k, args, env, model, image, executable, workload, "
    "prompt_tokens, output_tokens, depth, system_prompt, ignore_eos, "
    "concurrency, request_rate, burstiness, requests, slo, dataset, seed, messages, tools, endpoint, "
    "thinking, "
    "sampling, body, prefix_cache, "
    "queueing, min_decode, min_output_throughput, min_prefill, min_request_throughput, "
    "min_goodput, max_ttft_ms, "
    "max_tpot_ms, max_itl_ms, max_e2el_ms, min_acceptance_rate, min_acceptance_length, "
    "max_error_rate, max_memory_gib, "
    "min_kv_cache_tokens, against, max_slowdown, min_speedup, same_output, max_kv_loss, "
    "expect, max_rounds, budget_s, "
    "tolerance, name; latencies also by percentile, such as max_ttft_p90_ms (p50, p90, p95, p99)"
)


def faults_of(**keywords: Any) -> list[str]:
    with pytest.raises(MarkError) as caught:
        parse_mark(keywords)
    assert str(caught.value) == "\n".join(caught.value.faults)
    return list(caught.value.faults)


def test_a_bare_mark_measures_the_default_load_without_limits() -> None:
    spec = parse_mark({})

    assert spec == GateSpec()
    assert spec.load == Load(
        endpoint="chat",
        prompt_tokens=None,
        output_tokens=256,
        concurrency=1,
        thinking=False,
        sampling="greedy",
        body=FrozenMap(),
        prefix_cache="cold",
        queueing=False,
    )
    assert (spec.limits, spec.max_error_rate, spec.max_rounds, spec.budget_s, spec.tolerance) == (
        (),
        0,
        12,
        600,
        0,
    )


def test_every_available_keyword_arrives() -> None:
    spec = parse_mark(
        {
            "target": "qwen36",
            "k": 3,
            "args": {"max_num_seqs": 4},
            "env": {"A": 1, "B": None},
            "model": "m",
            "executable": "/vllm",
            "prompt_tokens": 100,
            "output_tokens": 32,
            "concurrency": 8,
            "endpoint": "completions",
            "thinking": False,
            "sampling": {"temperature": 0.6},
            "body": {"seed": 1},
            "prefix_cache": "cold",
            "queueing": True,
            "min_decode": 100,
            "max_error_rate": 0.1,
            "max_rounds": 6,
            "budget_s": 60,
            "tolerance": 0.02,
            "name": "n",
        }
    )

    assert spec == GateSpec(
        target="qwen36",
        k=3,
        args=FrozenMap({"max-num-seqs": 4}),
        env=FrozenMap({"A": "1", "B": None}),
        model="m",
        executable="/vllm",
        load=Load(
            endpoint="completions",
            prompt_tokens=100,
            output_tokens=32,
            concurrency=8,
            sampling=FrozenMap({"temperature": 0.6}),
            body=FrozenMap({"seed": 1}),
            queueing=True,
        ),
        limits=(Limit("min_decode", "decode_tok_s", 100.0), Limit("max_error_rate", "error_rate", 0.1)),
        max_error_rate=0.1,
        max_rounds=6,
        budget_s=60,
        tolerance=0.02,
        name="n",
    )
    assert hash(spec) == hash(spec)


@pytest.mark.parametrize(
    ("gate", "metric", "is_floor"),
    [
        ("min_decode", "decode_tok_s", True),
        ("min_output_throughput", "output_tok_s", True),
        ("min_prefill", "prefill_tok_s", True),
        ("max_ttft_ms", "ttft_ms", False),
        ("max_tpot_ms", "tpot_ms", False),
        ("max_e2el_ms", "e2el_ms", False),
    ],
)
def test_a_limit_names_its_metric_and_side(gate: str, metric: str, is_floor: bool) -> None:
    (limit,) = parse_mark({gate: 50}).limits

    assert limit == Limit(gate, metric, 50.0)
    assert limit.is_floor is is_floor
    assert METRICS[metric].higher_is_better is is_floor
    assert metric_of_gate(gate) == metric


def test_every_metric_of_a_keyword_exists() -> None:
    judged = {word.metric for word in KEYWORDS.values() if word.metric}

    assert judged - set(METRICS) == {"kv_cache_tokens"}  # a fact of the server, not a figure of a Result
    assert metric_of_gate("concurrency") is None
    assert metric_of_gate("other") is None


def test_gates_with_equal_variant_keywords_share_a_server() -> None:
    words = parse_mark({"k": 3, "args": {"max_num_seqs": 4}, "min_decode": 1}).server_words

    assert words == parse_mark({"k": 3, "args": {"max-num-seqs": 4}, "concurrency": 2}).server_words
    assert words != parse_mark({"k": 0, "args": {"max-num-seqs": 4}}).server_words


def test_none_is_a_keyword_not_given() -> None:
    assert parse_mark({"min_decode": None, "k": None, "against": None}) == GateSpec()


def test_marks_merge_per_keyword_and_the_closest_wins() -> None:
    module, on_class, function = (
        {"k": 3, "min_decode": 80},
        {"min_decode": 100, "args": {"a": 1}},
        {"args": {"b": 1}},
    )

    assert merge_marks([function, on_class, module]) == {"k": 3, "min_decode": 100, "args": {"b": 1}}


def test_a_closer_none_takes_a_limit_back() -> None:
    assert parse_mark(merge_marks([{"min_decode": None}, {"min_decode": 100, "k": 3}])) == GateSpec(k=3)


def test_marks_of_class_function_and_parameter_merge_as_reported() -> None:
    on_class = {"min_decode": 100, "k": 3}

    assert merge_marks([on_class]) == {"min_decode": 100, "k": 3}
    assert merge_marks([{"min_decode": 120}, on_class]) == {"min_decode": 120, "k": 3}
    assert merge_marks([{"min_decode": 60}, {"min_decode": 80}]) == {"min_decode": 60}


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"target": ""}, "target='' is not a text; give the name of a target, such as target='qwen36'"),
        (
            {"k": "3"},
            "k='3' is not a whole number of 0 or more; give num_speculative_tokens, 0 for none, such as k=3",
        ),
        (
            {"k": -1},
            "k=-1 is not a whole number of 0 or more; give num_speculative_tokens, 0 for none, such as k=3",
        ),
        (
            {"k": True},
            "k=True is not a whole number of 0 or more; give num_speculative_tokens, 0 for none, such as k=3",
        ),
        (
            {"args": ["--x"]},
            (
                "args=['--x'] is not a dict of names to plain values; "
                'give vLLM options by name, such as args={"max-num-seqs": 32}'
            ),
        ),
        (
            {"args": {"x": 1, "--x": 2}},
            "args: --x is the same option as x; keep one of them",
        ),
        (
            {"env": {"A": ["secret"]}},
            (
                "env is not a dict of environment variables to texts or numbers; "
                'give environment variables by name, such as env={"CUTE_DSL_ARCH": "sm_121a"}'
            ),
        ),
        (
            {"model": 3},
            (
                "model=3 is not a text; give a model's name or folder, such as "
                "model='nvidia/Qwen3.6-35B-A3B-NVFP4'"
            ),
        ),
        (
            {"executable": 3},
            "executable=3 is not a text; give the path of vllm, such as executable='/opt/vllm/bin/vllm'",
        ),
        (
            {"prompt_tokens": 0},
            "prompt_tokens=0 is not a whole number above 0; give tokens, such as prompt_tokens=1000",
        ),
        (
            {"output_tokens": 1.5},
            "output_tokens=1.5 is not a whole number above 0; give tokens, such as output_tokens=256",
        ),
        (
            {"concurrency": False},
            "concurrency=False is not a whole number above 0; give requests in flight, such as concurrency=8",
        ),
        (
            {"endpoint": "responses"},
            (
                "endpoint='responses' is not one of 'chat', 'completions'; give the API to use, "
                "such as endpoint='chat'"
            ),
        ),
        (
            {"thinking": 1},
            "thinking=1 is not True or False; give whether the model may think, such as thinking=True",
        ),
        (
            {"sampling": "random"},
            (
                "sampling='random' is not 'greedy', 'server' or a dict; "
                'give how tokens are chosen, such as sampling={"temperature": 0.6}'
            ),
        ),
        (
            {"body": {"x": {1, 2}}},
            (
                "body={'x': {1, 2}} is not a dict of names to plain values; "
                'give further request fields, such as body={"top_k": 20}'
            ),
        ),
        (
            {"prefix_cache": True},
            (
                "prefix_cache=True is not one of 'cold', 'warm'; "
                "give the state of the prefix cache, such as prefix_cache='cold'"
            ),
        ),
        (
            {"queueing": "yes"},
            (
                "queueing='yes' is not True or False; "
                "give whether requests may wait in the server's queue, such as queueing=True"
            ),
        ),
        (
            {"min_decode": "fast"},
            "min_decode='fast' is not a number above 0; give tokens per second, such as min_decode=100",
        ),
        (
            {"min_decode": 0},
            "min_decode=0 is not a number above 0; give tokens per second, such as min_decode=100",
        ),
        (
            {"min_decode": -5},
            "min_decode=-5 is not a number above 0; give tokens per second, such as min_decode=100",
        ),
        (
            {"min_decode": float("nan")},
            "min_decode=nan is not a number above 0; give tokens per second, such as min_decode=100",
        ),
        (
            {"min_output_throughput": float("inf")},
            (
                "min_output_throughput=inf is not a number above 0; "
                "give tokens per second, such as min_output_throughput=300"
            ),
        ),
        (
            {"min_prefill": True},
            "min_prefill=True is not a number above 0; give tokens per second, such as min_prefill=2000",
        ),
        (
            {"max_ttft_ms": "1s"},
            "max_ttft_ms='1s' is not a number above 0; give milliseconds, such as max_ttft_ms=500",
        ),
        (
            {"max_tpot_ms": 0},
            "max_tpot_ms=0 is not a number above 0; give milliseconds, such as max_tpot_ms=12.5",
        ),
        (
            {"max_e2el_ms": []},
            "max_e2el_ms=[] is not a number above 0; give milliseconds, such as max_e2el_ms=5000",
        ),
        (
            {"max_error_rate": 2},
            (
                "max_error_rate=2 is not a number from 0 to 1; "
                "give failed requests per request, such as max_error_rate=0.01"
            ),
        ),
        (
            {"max_rounds": 2},
            "max_rounds=2 is not a whole number from 3 to 12; give rounds, such as max_rounds=12",
        ),
        (
            {"max_rounds": 13},
            "max_rounds=13 is not a whole number from 3 to 12; give rounds, such as max_rounds=12",
        ),
        ({"budget_s": "1h"}, "budget_s='1h' is not a number above 0; give seconds, such as budget_s=600"),
        (
            {"tolerance": 1},
            (
                "tolerance=1 is not a number from 0 up to, but not including, 1; "
                "give a share of the limit, such as tolerance=0.02"
            ),
        ),
        ({"name": " "}, "name=' ' is not a text; give a stable name, such as name='single-stream'"),
        ({"body": {"stream": False}}, "body: stream is set by the measurement itself; leave it out"),
        (
            {"body": {"max_tokens": 5}},
            "body: max_tokens is set by the measurement itself; use the keyword output_tokens",
        ),
        (
            {"endpoint": "completions", "thinking": True},
            "thinking=True needs endpoint='chat': completions send the prompt as it is",
        ),
        (
            {"dataset": "rondom", "prompt_tokens": 1000},
            (
                "dataset='rondom' is not a dataset; did you mean random? valid are random, sonnet, and files "
                "that end in .json (ShareGPT) or .jsonl (a prompt a line)"
            ),
        ),
        (
            {"dataset": "random"},
            "dataset='random' needs prompt_tokens: say how long the prompts are, such as prompt_tokens=1000",
        ),
        (
            {"seed": 1},
            "seed needs dataset: the shipped prompts are always the same; name one, or leave seed out",
        ),
        (
            {"concurrency": 257},
            "concurrency=257 is more than the 256 that one client sends; lower it",
        ),
        (
            {"output_tokens": 1, "min_decode": 5},
            "min_decode needs output_tokens of 2 or more: one token has no decode rate",
        ),
        (
            {"request_rate": 2.5},
            "request_rate needs requests: say how many are sent, such as requests=200",
        ),
        (
            {"burstiness": 0.5, "requests": 100, "request_rate": float("inf"), "concurrency": 4},
            "burstiness needs a request_rate that is finite: it is the shape of the gaps between requests",
        ),
        (
            {"requests": 100, "concurrency": 32},
            (
                "requests=100 leaves too little between ramp and drain for 3 segments: give 160 or more, or "
                "leave requests out to measure bursts in rounds"
            ),
        ),
        (
            {"requests": 300, "request_rate": float("inf")},
            "requests=300 at once are more than 256, the most that one client sends",
        ),
        (
            {"requests": 100, "prefix_cache": "warm"},
            "prefix_cache='warm' is for bursts in rounds, not for a run of requests; leave requests out",
        ),
        (
            {"min_goodput": 2},
            ('min_goodput needs slo: the limits that a request must meet, such as slo={"ttft_ms": 500}'),
        ),
        (
            {"slo": {"ttft": 500}},
            (
                "slo={'ttft': 500} is not a dict of ttft_ms, tpot_ms, e2el_ms to numbers above 0; give "
                "limits "
                'of goodput in ms, such as slo={"ttft_ms": 500, "tpot_ms": 50}'
            ),
        ),
        (
            {"requests": 100, "max_slowdown": 0.05},
            "max_slowdown compares bursts in rounds, not runs of many requests; leave requests out",
        ),
        (
            {"requests": 100, "k": 3, "min_acceptance_rate": 0.5},
            (
                "min_acceptance_rate is counted around rounds, not within a run of many requests; leave "
                "requests out"
            ),
        ),
        (
            {"endpoint": "completions", "system_prompt": "Be brief."},
            "system_prompt needs endpoint='chat': completions send the prompt as it is",
        ),
        (
            {"dataset": "own.jsonl", "depth": 100},
            "depth does not go with a file, whose prompts may have turns of their own; leave it out",
        ),
    ],
)
def test_what_is_wrong_with_a_keyword(keywords: dict[str, Any], text: str) -> None:
    assert faults_of(**keywords) == [text]


@pytest.mark.parametrize(
    ("name", "value"), [("min_speedup", 1.25), ("same_output", True), ("max_kv_loss", 0.2)]
)
def test_a_comparison_needs_something_to_compare_with(name: str, value: Any) -> None:
    assert faults_of(**{name: value}) == [
        f'{name} needs against: say what to compare with, such as against={{"k": 0}}',
    ]
    assert parse_mark({name: value, "against": {"k": 0}}).against == {"k": 0}


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        (
            {"messages": "m.json", "endpoint": "completions"},
            "messages need endpoint='chat': completions send one text",
        ),
        (
            {"tools": "t.json", "endpoint": "completions"},
            "tools need endpoint='chat': completions send one text",
        ),
        (
            {"messages": "m.json", "prompt_tokens": 64},
            "messages and prompt_tokens both say what is sent; keep one of them",
        ),
        (
            {"messages": "m.json", "dataset": "sonnet"},
            "messages and dataset both say what is sent; keep one of them",
        ),
    ],
)
def test_own_messages_and_tools_contradict_other_loads(keywords: dict[str, Any], text: str) -> None:
    assert faults_of(**keywords) == [text]


def test_outputs_may_be_compared_in_another_way() -> None:
    options = {"max_tokens": 64, "thinking": False, "guided": False, "strict": True}

    spec = parse_mark({"k": 3, "against": {"k": 0}, "same_output": options})

    assert spec.same_output
    assert spec.output_options == options
    assert parse_mark({"k": 3, "against": {"k": 0}, "same_output": True}).output_options == {}
    assert spec.reference() == parse_mark({"k": 0})


@pytest.mark.parametrize("value", [1, {}, {"tokens": 64}, {"max_tokens": 0}, {"strict": 1}])
def test_other_ways_to_compare_outputs_are_refused(value: Any) -> None:
    assert faults_of(same_output=value, against={"k": 0})[0] == (
        f"same_output={value!r} is not True, False or a dict of max_tokens, thinking, guided and strict; "
        "give whether outputs must be equal, such as same_output=True"
    )


def test_the_reference_of_a_comparison_limits_nothing() -> None:
    spec = parse_mark({"k": 3, "against": {"k": 0}, "max_kv_loss": 0.2, "same_output": True})

    assert spec.reference() == parse_mark({"k": 0})


def test_a_slowdown_without_a_second_server_is_one_against_stored_runs() -> None:
    alone = parse_mark({"max_slowdown": {"ttft_ms": 0.2}})

    assert alone.by_baseline == (Comparison("max_slowdown[ttft_ms]", "ttft_ms", 0.2),)
    assert parse_mark({"max_slowdown": 0.05, "against": {"k": 0}}).by_baseline == ()
    assert parse_mark({"min_decode": 100}).by_baseline == ()


def test_a_comparison_names_its_gate_metric_and_bound() -> None:
    spec = parse_mark({"k": 3, "against": {"k": 0, "args": {"max_num_seqs": 4}}, "min_speedup": 1.25})
    named = parse_mark({"against": "rented", "max_slowdown": {"ttft_ms": 0.2, "decode_tok_s": 0.05}})

    assert spec.comparisons == (Comparison("min_speedup", None, 1.25),)
    assert not spec.same_output
    assert parse_mark({"against": {"k": 0}, "same_output": True}).same_output
    assert spec.reference() == GateSpec(k=0, args=FrozenMap({"max-num-seqs": 4}))
    assert named.comparisons == (
        Comparison("max_slowdown[ttft_ms]", "ttft_ms", 0.2),
        Comparison("max_slowdown[decode_tok_s]", "decode_tok_s", 0.05),
    )
    assert named.reference() == GateSpec(target="rented")


def test_a_percentile_limit_is_about_that_share_of_the_requests() -> None:
    assert parse_mark({"max_ttft_p90_ms": 500}).limits == (Limit("max_ttft_p90_ms", "ttft_ms", 500.0, 0.9),)


@pytest.mark.parametrize("percentile", ["p50", "p90", "p95", "p99"])
def test_percentiles_of_itl_are_refused_whose_gaps_are_not_independent(percentile: str) -> None:
    [fault] = faults_of(**{f"max_itl_{percentile}_ms": 50})
    assert fault == (
        f"max_itl_{percentile}_ms: gaps within one stream are not independent, so no interval holds for "
        f"them; limit max_tpot_{percentile}_ms or max_itl_ms"
    )
    assert parse_mark({"max_itl_ms": 50}).limits == (Limit("max_itl_ms", "itl_ms", 50.0),)


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        (
            {"against": {"kk": 0}, "min_speedup": 1.2},
            (
                "against: kk is not a keyword of a variant; did you mean k? "
                "valid are target, k, args, env, model, image, executable"
            ),
        ),
        (
            {"against": {"k": -1}, "min_speedup": 1.2},
            (
                "against: k=-1 is not a whole number of 0 or more; "
                "give num_speculative_tokens, 0 for none, such as k=3"
            ),
        ),
        (
            {"against": {"k": 0}, "max_slowdown": {"itl_ms": 0.1}},
            "max_slowdown: itl_ms cannot be compared, as a chunk holds several tokens with MTP; use tpot_ms",
        ),
        (
            {"against": {"k": 0}, "min_speedup": {"decode": 1.1}},
            (
                "min_speedup: decode is not a metric to compare; did you mean decode_tok_s? valid are "
                "decode_tok_s, output_tok_s, decode_throughput_tok_s, prefill_tok_s, input_tok_s, "
                "requests_per_s, ttft_ms, tpot_ms, e2el_ms"
            ),
        ),
        (
            {"against": {"k": 0}, "min_speedup": {}},
            (
                "min_speedup={} is not a number above 0 or a dict of metrics to such numbers; "
                "give the least factor, such as min_speedup=1.25"
            ),
        ),
        (
            {"against": {"k": 0}},
            "against compares nothing by itself; say what must hold, such as min_speedup=1.25",
        ),
        (
            {"against": {"k": 0}, "same_output": False},
            "against compares nothing by itself; say what must hold, such as min_speedup=1.25",
        ),
    ],
)
def test_what_is_wrong_with_a_comparison(keywords: dict[str, Any], text: str) -> None:
    assert faults_of(**keywords) == [text]


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        (
            {"k": 0, "min_acceptance_rate": 0.6},
            "min_acceptance_rate needs draft tokens, and k=0 drafts none; leave one of them out",
        ),
        (
            {"k": 0, "min_acceptance_length": 1},
            "min_acceptance_length needs draft tokens, and k=0 drafts none; leave one of them out",
        ),
        (
            {"k": 3, "min_acceptance_length": 4.5},
            "min_acceptance_length=4.5 can never hold at k=3, where a step yields 4 at most",
        ),
    ],
)
def test_a_limit_on_acceptance_that_cannot_be_met_is_refused(keywords: dict[str, Any], text: str) -> None:
    assert faults_of(**keywords) == [text]


def test_a_limit_on_acceptance_of_random_tokens_is_refused() -> None:
    assert faults_of(dataset="random", min_acceptance_rate=0.5)[-1] == (
        "min_acceptance_rate says nothing about dataset='random', as no draft predicts random tokens as it "
        "does text; use the shipped prompts, or a dataset of real ones"
    )


def test_an_unknown_keyword_lists_the_valid_ones() -> None:
    assert faults_of(min_decod=100) == [
        "min_decod is not a keyword of the sparkperf mark; did you mean min_decode?",
        VALID,
    ]
    assert faults_of(xyzzy=1) == ["xyzzy is not a keyword of the sparkperf mark", VALID]


def test_all_faults_of_a_mark_are_told_at_once() -> None:
    assert faults_of(min_decod=100, k=-1, max_itl_ms="x") == [
        "min_decod is not a keyword of the sparkperf mark; did you mean min_decode?",
        "k=-1 is not a whole number of 0 or more; give num_speculative_tokens, 0 for none, such as k=3",
        "max_itl_ms='x' is not a number above 0; give milliseconds, such as max_itl_ms=50",
        VALID,
    ]


def test_secrets_in_env_stay_out_of_repr() -> None:
    assert "hf-secret" not in repr(parse_mark({"env": {"HF_TOKEN": "hf-secret"}}))


def test_expected_facts_are_kept_and_a_band_that_is_none_is_a_fault() -> None:
    assert parse_mark({"expect": {"kv_cache_tokens": (343_699, 0.02)}}).expect == {
        "kv_cache_tokens": [343_699, 0.02]
    }
    assert faults_of(expect={"k": (1, 2, 3)}) == [
        (
            "expect['k']=(1, 2, 3) is neither a value nor a figure with the share it may be off by; write "
            "(343_699, 0.02)"
        )
    ]
