"""The figures of one burst: requests that started together on one server (one request at concurrency 1).

Per-stream metrics of a burst are geometric means over its streams, since everything above works on logs;
throughputs divide by the wall time of the burst, from the first request written to the last token event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from pytest_sparkperf.core.frozen import EMPTY
from pytest_sparkperf.core.result import RequestResult, TpotRule
from pytest_sparkperf.core.slo import share_met


def common_rule(requests: Sequence[RequestResult]) -> TpotRule:
    """Return the one TPOT rule that all these requests can follow."""
    exact = all(request.first_event_tokens is not None for request in requests)
    return "minus_first_event" if exact else "n_minus_1"


def burst_figures(
    requests: Sequence[RequestResult], rule: TpotRule, slo: Mapping[str, float] = EMPTY
) -> Mapping[str, float | None]:
    """Return every metric of a burst by name, in the metric's unit; None where it could not be measured.

    ``slo`` are the limits (ms) of goodput. Only a burst whose requests are all valid has figures: one stream
    less would be less load.
    """
    if not requests or not all(request.valid for request in requests):
        return dict.fromkeys([*_PER_STREAM, *_PER_BURST])
    tpot_ms = _geometric_mean([request.tpot_ms_by(rule) for request in requests])
    figures: dict[str, float | None] = {
        name: _geometric_mean([read(request) for request in requests]) for name, read in _PER_STREAM.items()
    }
    figures |= {name: read(requests) for name, read in _PER_BURST.items()}
    figures["tpot_ms"] = tpot_ms
    figures["decode_tok_s"] = None if tpot_ms is None else 1000 / tpot_ms
    share = share_met(requests, rule, slo)
    if share is not None and (rate := figures["requests_per_s"]) is not None:
        figures["goodput_rps"] = share * rate
    return figures


def output_rate(requests: Sequence[RequestResult]) -> float | None:
    """Return output tokens / wall time of a burst in tok/s, also of one whose streams are not valid."""
    return _rate(_total([one.output_tokens for one in requests]), _wall_s(requests))


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    if any(value is None or value <= 0 for value in values):
        return None
    return math.exp(fmean(math.log(value) for value in values if value is not None))


def _mean_itl_ms(request: RequestResult) -> float | None:
    return fmean(request.itl_ms) if request.itl_ms else None


def _wall_s(requests: Sequence[RequestResult]) -> float | None:
    starts = [request.written_s for request in requests if request.written_s is not None]
    return _window_s(requests, starts)


def _decode_s(requests: Sequence[RequestResult]) -> float | None:
    starts = [request.first_event_s for request in requests if request.first_event_s is not None]
    return _window_s(requests, starts)


def _window_s(requests: Sequence[RequestResult], starts: Sequence[float]) -> float | None:
    ends = [request.last_event_s for request in requests if request.last_event_s is not None]
    if len(starts) < len(requests) or len(ends) < len(requests):
        return None
    window_s = max(ends) - min(starts)
    return window_s if window_s > 0 else None


def _total(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _rate(count: int | None, window_s: float | None) -> float | None:
    return None if count is None or window_s is None else count / window_s


_PER_STREAM: Mapping[str, Callable[[RequestResult], float | None]] = {
    "decode_tok_s": lambda request: request.decode_tok_s,
    "tpot_ms": lambda request: request.tpot_ms,
    "ttft_ms": lambda request: request.ttft_ms,
    "e2el_ms": lambda request: request.e2el_ms,
    "itl_ms": _mean_itl_ms,
    "prefill_tok_s": lambda request: request.prefill_tok_s,
}
_PER_BURST: Mapping[str, Callable[[Sequence[RequestResult]], float | None]] = {
    "output_tok_s": output_rate,
    "decode_throughput_tok_s": lambda burst: _rate(
        _total([one.output_tokens for one in burst]), _decode_s(burst)
    ),
    "input_tok_s": lambda burst: _rate(_total([one.prompt_tokens for one in burst]), _wall_s(burst)),
    "requests_per_s": lambda burst: _rate(len(burst), _wall_s(burst)),
}
