"""What can still be said of a server whose tokens arrive in lumps: whole requests, and its own counters."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_sparkperf.core.acceptance import acceptance_between
from pytest_sparkperf.core.burst import output_rate
from pytest_sparkperf.core.exposition import Scrape, difference
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.shared import counter_figures
from pytest_sparkperf.core.validity import BUFFERED, IMPOSSIBLE_RATE

# Lumps that are read one after the other look like a stream that no memory could give.
LUMPY = frozenset({BUFFERED, IMPOSSIBLE_RATE})


def what_remains(burst: Sequence[RequestResult], before: Scrape | None, after: Scrape | None) -> str:
    """Say the output rate over whole requests and, where counters tell, the time of a token and of a step.

    Empty where neither is known. ``before`` and ``after`` are scrapes around the burst.
    """
    rate, parts = output_rate(burst), []
    if rate is not None:
        parts.append(f"{rate:.4g} tok/s of output over whole requests")
    if before is not None and after is not None:
        tpot_ms = counter_figures(difference(before, after)).get("tpot_ms")
        drafted = acceptance_between(before, after)
        length = 1.0 if drafted is None else drafted.length
        if tpot_ms is not None:
            parts.append(f"{tpot_ms:.4g} ms per token by the server's own counters")
        if tpot_ms is not None and length is not None:
            parts.append(f"a step of {tpot_ms * length:.4g} ms with {length:.3g} tokens")
    return f"what can be said without the stream's times: {', '.join(parts)}" if parts else ""
