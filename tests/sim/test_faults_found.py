"""Each fault of a server that spoils a measurement is found by measuring, and named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gate_runner import QUICK, run_gate, verdict
from simulator_process import StartSimulator
from stream_reader import call

from pytest_sparkperf.core.report import work_line
from pytest_sparkperf.core.result import FlagCount, Result

Switch = Callable[..., str]
SPECULATING = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}')


@pytest.fixture
def faulty(simulator: StartSimulator) -> Iterator[Switch]:
    """Switch faults of a simulator with k=3 on and return its URL; all are off again after the test."""
    url = simulator(*QUICK, *SPECULATING).url

    def switch(name: str, value: object = True) -> str:
        assert call(url, "/sparkperf_sim/faults", {"name": name, "value": value}).status == 200
        return url

    yield switch
    for name in call(url, "/sparkperf_sim/faults").json():
        call(url, "/sparkperf_sim/faults", {"name": name, "value": None})


COUNTS = (
    r"a request failed twice \(token_count_mismatch\): usage and token_ids disagree about the number of "
    r"output tokens\. Seen: usage says "
)
FOREIGN = (
    r"the server generated \d+ tokens while this gate asked for 96: other traffic was on it; stop it, or say "
    r"traffic: shared in the target"
)
WARM = (
    r"\d+ prompt tokens came from the prefix cache, which was to be cold: start the server with "
    r"--no-enable-prefix-caching, or use a vLLM that knows cache_salt"
)
# Lumps that are read one after the other look like a stream, but no memory is that fast.
REMAINS = (
    r"; what can be said without the stream's times: [\d.]+ tok/s of output over whole requests, [\d.]+ ms "
    r"per token by the server's own counters, a step of [\d.]+ ms with [\d.]+ tokens"
)
LUMPS = r"a request failed twice \((buffered|impossible_rate)\): .* in lumps.* Seen: [^;]*" + REMAINS
IMPOSSIBLE = (
    r"a request failed twice \(impossible_rate\): The rate is above what the memory's bandwidth allows, so "
    r"tokens were counted or timed wrongly; .* Seen: \d+ tok/s where 273 GB/s and 2\.566 GB per token allow "
    r"425\.6 at k=3" + REMAINS
)


@pytest.mark.parametrize(
    ("fault", "value", "reason"),
    [
        pytest.param("foreign_traffic", 20, FOREIGN, marks=pytest.mark.slow),
        ("warm_cache", True, WARM),
        ("lost_delta", 7, COUNTS + "24 tokens, token_ids 2[0-3]"),
        ("doubled_delta", 7, COUNTS + "24 tokens, token_ids 2[5-8]"),
        ("wrong_usage", True, COUNTS + "48 tokens, token_ids 24"),
        ("lumps", True, LUMPS),
    ],
)
def test_a_fault_that_spoils_the_measurement_is_an_error_that_names_it(
    faulty: Switch, tmp_path: Path, fault: str, value: object, reason: str
) -> None:
    result = run_gate(tmp_path, faulty(fault, value), min_decode=1)

    found = verdict(result, "min_decode")
    assert found.outcome == "ERROR"
    assert re.fullmatch(reason, found.reason), found.reason
    assert result.decode_tok_s is None


def test_a_rate_that_the_memory_cannot_give_is_an_error(simulator: StartSimulator, tmp_path: Path) -> None:
    url = simulator("--jit-s", "0", "--fault", "impossible_rate", *SPECULATING).url

    result = run_gate(tmp_path, url, min_decode=1)

    found = verdict(result, "min_decode")
    assert found.outcome == "ERROR"
    assert re.fullmatch(IMPOSSIBLE, found.reason), found.reason
    assert result.invalid == {"impossible_rate": 2}


def test_counters_that_start_anew_are_told_though_the_second_try_was_good(
    faulty: Switch, tmp_path: Path
) -> None:
    result = run_gate(tmp_path, faulty("counter_reset", 6))

    assert re.search(
        r"^a pass was measured again: the server restarted during the measurement \(vllm:\w+ ",
        "\n".join(result.notes),
        re.MULTILINE,
    ), result.notes


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "flag"), [("past_end_after", "past_end"), ("repeat_after", "degenerate")])
def test_answers_that_are_no_usual_text_are_flagged_and_counted(
    faulty: Switch, tmp_path: Path, fault: str, flag: str
) -> None:
    result = run_gate(tmp_path, faulty(fault, 4), output_tokens=64)

    count = 4 * result.rounds
    other = ({"past_end", "degenerate"} - {flag}).pop()
    assert result.rounds
    assert result.flags == {flag: FlagCount(count, count), other: FlagCount(0, count)}
    assert work_line(result).endswith(f"; flagged: {flag} {count}/{count}")


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "flag"), [("past_end_after", "past_end"), ("repeat_after", "degenerate")])
def test_servers_that_did_different_work_are_not_compared(
    simulator: StartSimulator, tmp_path: Path, fault: str, flag: str
) -> None:
    on = simulator(*QUICK, *SPECULATING, "--fault", f"{fault}=4").url

    off = simulator(*QUICK).url

    result = run_gate(tmp_path, on, reference=off, min_speedup=0.01, min_decode=1, output_tokens=64)

    found = verdict(result, "min_speedup")
    assert found.outcome == "ERROR"
    assert found.reason.startswith(
        f"{flag}: 12/12 answers of B (b) against 0/12 of A (a), more than 10 points apart: they did "
        "different work, so their speeds cannot be compared. "
    )
    assert result.ratio is None
    assert verdict(result, "min_decode").outcome == "PASS"


def test_a_sound_server_has_no_flag_and_no_note(simulator: StartSimulator, tmp_path: Path) -> None:
    result: Result = run_gate(tmp_path, simulator(*QUICK, *SPECULATING).url)

    assert {name: count.flagged for name, count in result.flags.items()} == {"past_end": 0, "degenerate": 0}
    assert result.invalid == {}
    assert result.notes == ()
