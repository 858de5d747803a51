"""Fixtures: the running server, warm clients, free measurements and comparisons in a test's body."""

from __future__ import annotations

import pytest
from suite_runner import Suite

SMALL = "prompt_tokens=40, output_tokens=16, max_rounds=3"


def test_server_and_clients_are_handed_out_ready(suite: Suite) -> None:
    suite.pytester.makepyfile(
        """
import pytest

def test_server(sparkperf_server, sparkperf_targets):
    assert sparkperf_server.k == 0
    assert sparkperf_server.facts["max_num_seqs"] > 0
    assert sparkperf_server.log is None  # of a server that was attached to
    assert sparkperf_server.metrics().total("vllm:generation_tokens_total") >= 1
    assert [target.launch for target in sparkperf_targets.values()] == ["attach"]
    with pytest.raises(TypeError):
        sparkperf_targets["x"] = None

def test_client(sparkperf_client, sparkperf_server):
    assert str(sparkperf_client.base_url).rstrip("/") == sparkperf_server.url
    served = sparkperf_server.metrics().total("vllm:request_success_total")
    assert served >= 9  # warm: at least 8 requests and the one that showed it ready
    answer = sparkperf_client.post(
        "/v1/completions", json={"model": sparkperf_server.model, "prompt": "Hello", "max_tokens": 3}
    )
    assert answer.json()["usage"]["completion_tokens"] == 3

@pytest.mark.asyncio
async def test_async_client(sparkperf_async_client):
    assert (await sparkperf_async_client.get("/v1/models")).status_code == 200
"""
    )

    suite.run().assert_outcomes(passed=3)


@pytest.mark.slow
def test_measuring_in_the_body_judges_into_verdicts_and_fails_nothing(suite: Suite) -> None:
    suite.pytester.makepyfile(
        f"""
import pytest
from pytest_sparkperf import ConfigError

def test_measure(sparkperf_measure):
    result = sparkperf_measure({SMALL})
    assert result.simulated and result.verdicts == () and 3 <= result.rounds <= 6
    assert result.percentile("ttft_ms", 50) <= result.percentile("ttft_ms", 90)

def test_limits(sparkperf_measure):
    result = sparkperf_measure({SMALL}, min_decode=10_000_000, max_error_rate=0)
    assert [(one.gate, one.outcome) for one in result.verdicts] == [
        ("min_decode", "FAIL"), ("max_error_rate", "PASS")]

def test_request(sparkperf_measure):
    hello = [{{"role": "user", "content": "Hi"}}]
    one = sparkperf_measure.request(messages=hello, max_tokens=5, ignore_eos=True)
    assert one.valid and one.output_tokens == 5 and one.finish_reason == "length"
    assert len(one.token_ids) == 5 and one.ttft_ms > 0
    two = sparkperf_measure.request(prompt="Hi", max_tokens=4, ignore_eos=True)
    assert two.valid and two.output_tokens == 4
    bad = sparkperf_measure.request(prompt="Hi", max_tokens=4, model="nope")
    assert not bad.valid and bad.reason == "rejected" and "nope" in bad.error

def test_wrong_keyword(sparkperf_measure):
    with pytest.raises(ConfigError, match="min_decod is not a keyword of the sparkperf mark"):
        sparkperf_measure(min_decod=1)
"""
    )

    suite.run().assert_outcomes(passed=4)


def test_measuring_works_inside_a_running_event_loop(suite: Suite) -> None:
    suite.pytester.makepyfile(
        f"""
import pytest

@pytest.mark.asyncio
async def test_async(sparkperf_measure):
    assert sparkperf_measure({SMALL}).decode_tok_s > 0
"""
    )

    suite.run().assert_outcomes(passed=1)


@pytest.mark.slow
def test_two_servers_are_compared_in_the_body(suite: Suite) -> None:
    suite.pytester.makefile(
        ".yaml",
        sparkperf="""
version: 1
default_target: sim
targets:
  sim:
    launch: sim
    args: {slowdown: 0.4, jit-s: 0}
""",
    )
    suite.pytester.makepyfile(
        f"""
import pytest
from pytest_sparkperf import ConfigError, sparkperf

def test_ab(sparkperf_ab):
    result = sparkperf_ab(a={{"k": 0}}, b={{"k": 3}}, {SMALL})
    assert result.ratio > 1.1
    assert result.server["k"] == 3 and result.against.server["k"] == 0
    assert result.acceptance_length > 1 and result.against.acceptance_length is None
    assert any(note.startswith("tokens per step 1.00 -> ") for note in result.notes)

@sparkperf(k=3, against={{"k": 0}}, min_speedup=1.01, {SMALL})
def test_of_the_mark(sparkperf_result):
    assert sparkperf_result.ratio > 1.01

def test_nothing_to_compare_with(sparkperf_ab):
    with pytest.raises(ConfigError, match="sparkperf_ab needs a="):
        sparkperf_ab(b={{"k": 3}})
"""
    )

    suite.run(attach=False).assert_outcomes(passed=3)


def test_a_body_may_name_its_server_where_no_target_is_the_default(suite: Suite) -> None:
    suite.pytester.makefile(
        ".yaml",
        sparkperf="""
version: 1
targets:
  a: {launch: sim, args: {slowdown: 0.4, jit-s: 0}}
  b: {launch: sim}
""",
    )
    suite.pytester.makepyfile(
        f"""
def test_measure(sparkperf_measure):
    assert sparkperf_measure(target="a", {SMALL}).server["name"].startswith("a")

def test_targets(sparkperf_targets):
    assert sorted(sparkperf_targets) == ["a", "b"]
"""
    )

    suite.run(attach=False).assert_outcomes(passed=2)


@pytest.mark.slow
def test_measuring_in_the_body_of_a_gate_uses_its_server(suite: Suite) -> None:
    suite.pytester.makepyfile(
        f"""
import pytest
from pytest_sparkperf import ServerError, sparkperf

@sparkperf(k=0, {SMALL})
def test_it(sparkperf_measure):
    assert sparkperf_measure({SMALL}).server["k"] == 0
    with pytest.raises(ServerError, match="serves k=0"):
        sparkperf_measure(k=3, {SMALL})
"""
    )

    suite.run().assert_outcomes(passed=1)


def test_result_of_a_mark_needs_a_mark(suite: Suite) -> None:
    suite.pytester.makepyfile("def test_it(sparkperf_result): ...")

    result = suite.run()

    result.assert_outcomes(errors=1)
    text = (
        "sparkperf_result is the result of a mark, and this test has none; put sparkperf(...) on the test, "
        "or measure in its body with sparkperf_measure"
    )
    result.stdout.fnmatch_lines([text])


def test_metrics_that_a_server_does_not_give_fail_where_they_were_asked_for(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_it="from dataclasses import replace\n"
        "def test_it(sparkperf_server):\n"
        "    replace(sparkperf_server, url='http://127.0.0.1:9').metrics()\n"
    )

    result = suite.run()

    result.assert_outcomes(failed=1)
    told = "E*ServerError: http://127.0.0.1:9/metrics [[]Errno 111[]] Connection refused; acceptance and *"
    result.stdout.fnmatch_lines([told, "test_it.py:3: ServerError"])
