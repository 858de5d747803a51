"""Log lines freed from what loggers, terminals and container tools put around them."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.logline import LogLine, log_lines

KV = "GPU KV cache size: 612,864 tokens"


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (KV, LogLine(KV)),
        (f"INFO 10-16 19:05:47 metrics.py:367] {KV}", LogLine(KV, None, None, "INFO", "metrics.py")),
        (f"INFO 05-06 22:30:35 [kv.py:1708] {KV}", LogLine(KV, None, None, "INFO", "kv.py")),
        (f"INFO 05-06 22:30:35 [v1/core/kv.py:1708] {KV}", LogLine(KV, None, None, "INFO", "kv.py")),
        (
            f"(EngineCore_DP0 pid=9) INFO 05-06 22:30:35 [kv.py:1] {KV}",
            LogLine(KV, "EngineCore_DP0", 9, "INFO", "kv.py"),
        ),
        (f"(VllmWorker rank=3 pid=285) {KV}", LogLine(KV, "VllmWorker rank=3", 285)),
        (
            f"(EngineCore_DP0 pid=9) (RayWorkerWrapper pid=7, ip=10.0.0.2) {KV}",
            LogLine(KV, "RayWorkerWrapper", 7),
        ),
        (f"qwen36-nightly  | (EngineCore pid=310) {KV}", LogLine(KV, "EngineCore", 310)),
        (
            f"[vllm]            | ERROR 06-02 05:17:18 [core.py:387] {KV}",
            LogLine(KV, None, None, "ERROR", "core.py"),
        ),
        (f"2026-05-01T20:55:06.206123456Z (EngineCore pid=187) {KV}", LogLine(KV, "EngineCore", 187)),
        (f"2026-05-01T20:55:06+02:00 {KV}", LogLine(KV)),
        (f"2026-05-01 20:55:06.936 | (EngineCore pid=187) {KV}", LogLine(KV, "EngineCore", 187)),
        (f"Jun 01 21:40:51 spark vllm[123]: (EngineCore pid=187) {KV}", LogLine(KV, "EngineCore", 187)),
        (f"ERROR:    {KV}", LogLine(KV, None, None, "ERROR")),
        (
            f"\x1b[0;36m(EngineCore pid=4)\x1b[0;0m \x1b[32mINFO\x1b[0m 05-06 22:30:35 [a.py:1] {KV}\x1b[K\r",
            LogLine(KV, "EngineCore", 4, "INFO", "a.py"),
        ),
    ],
)
def test_what_loggers_and_container_tools_put_in_front_is_taken_off(raw: str, line: LogLine) -> None:
    assert list(log_lines(raw)) == [line]


def test_a_progress_bar_is_not_glued_to_the_next_line_and_empty_lines_vanish() -> None:
    assert [line.body for line in log_lines("bar 0%\rbar 100%\rINFO\r\n(EngineCore pid=64) \n\nlast")] == [
        "bar 0%",
        "bar 100%",
        "INFO",
        "last",
    ]
