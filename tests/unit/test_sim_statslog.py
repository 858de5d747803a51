from __future__ import annotations

from pytest_sparkperf.sim.counters import Counters
from pytest_sparkperf.sim.statslog import Snapshot, State, stats_lines, take_snapshot

IDLE = State(running=0, waiting=0, kv_usage_ratio=0.0, prefix_hit_ratio=0.0)
BUSY = State(running=2, waiting=1, kv_usage_ratio=0.125, prefix_hit_ratio=0.5)


def test_an_idle_interval_logs_nothing() -> None:
    counters = Counters(draft_tokens=3)

    assert stats_lines(take_snapshot(counters, 0.0), take_snapshot(counters, 10.0), IDLE) == []


def test_an_interval_is_logged_as_vllm_logs_it() -> None:
    before = Snapshot(100.0, 500, 1000, 10, (9, 8, 7))
    after = Snapshot(110.0, 700, 1250, 20, (19, 16, 13))

    assert stats_lines(before, after, BUSY) == [
        (
            "loggers.py",
            (
                "Engine 000: Avg prompt throughput: 20.0 tokens/s, Avg generation throughput: 25.0 tokens/s, "
                "Running: 2 reqs, Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 50.0%"
            ),
        ),
        (
            "metrics.py",
            (
                "SpecDecoding metrics: Mean acceptance length: 3.40, Accepted throughput: 2.40 tokens/s, "
                "Drafted throughput: 3.00 tokens/s, Accepted: 24 tokens, Drafted: 30 tokens, "
                "Per-position acceptance rate: 1.000, 0.800, 0.600, Avg Draft acceptance rate: 80.0%"
            ),
        ),
    ]


def test_without_drafts_there_is_no_line_of_them() -> None:
    before, after = Snapshot(0.0, 0, 0, 0, ()), Snapshot(1.0, 5, 5, 0, ())

    assert [source for source, _ in stats_lines(before, after, IDLE)] == ["loggers.py"]
