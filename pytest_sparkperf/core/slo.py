"""Goodput: which requests meet every stated limit (SLO) at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_sparkperf.core.result import RequestResult, TpotRule

SLO_METRICS = ("ttft_ms", "tpot_ms", "e2el_ms")


def meets(request: RequestResult, rule: TpotRule, slo: Mapping[str, float]) -> bool:
    """Tell whether a request meets every limit (ms); a figure that one token does not have is no breach."""
    if not request.valid:
        return False
    seen = {
        "ttft_ms": request.ttft_ms,
        "tpot_ms": request.tpot_ms_by(rule),
        "e2el_ms": request.e2el_ms,
    }
    return all((value := seen[name]) is None or value <= limit for name, limit in slo.items())


def share_met(requests: Sequence[RequestResult], rule: TpotRule, slo: Mapping[str, float]) -> float | None:
    """Return the share of requests that meet every limit, 0 to 1; None without limits or requests."""
    if not slo or not requests:
        return None
    return sum(meets(request, rule, slo) for request in requests) / len(requests)
