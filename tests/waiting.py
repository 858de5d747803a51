"""Waiting for what a process does, without guessing how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_S = 30.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds; fail after 30 seconds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never came true"
        time.sleep(0.005)
