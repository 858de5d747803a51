"""Verdicts and results as lines of text; strings out, nothing written."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_sparkperf.core.flags import flag_words
from pytest_sparkperf.core.keywords import COMPARISONS, KEYWORDS
from pytest_sparkperf.core.metrics import METRICS, Metric
from pytest_sparkperf.core.result import Outcome, Result, Verdict

_WORST_FIRST: tuple[Outcome, ...] = ("ERROR", "FAIL", "INCONCLUSIVE", "PASS")
_SHOWN = ("decode_tok_s", "output_tok_s", "prefill_tok_s", "goodput_rps", "ttft_ms", "tpot_ms", "e2el_ms")
SIMULATED_WORD = "SIMULATED"
SIMULATED = f"{SIMULATED_WORD}: a figure of the embedded simulator says nothing about a real server"


def worst(verdicts: Sequence[Verdict]) -> Outcome | None:
    """Return the outcome that decides the test; None when nothing was judged."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in _WORST_FIRST if outcome in outcomes), None)


def figure(value: float, unit: str = "") -> str:
    """Format a figure with about four digits and its unit: ``1,234 tok/s``, ``0.6512``."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 4
    return f"{value:,.{digits}f} {unit}".rstrip()


def verdict_line(verdict: Verdict, metric: Metric | None) -> str:
    """Say one verdict: the word, the estimate with its interval, the limit, and what it means."""
    unit = "times the speed" if _is_ratio(verdict) else metric.unit if metric else ""
    if verdict.estimate is None:
        word = "SKIPPED" if verdict.excused else verdict.outcome
        return f"{word} {_asked(verdict)}: {verdict.reason}"
    interval = ""
    if verdict.low is not None and verdict.high is not None and not _is_fact(verdict):
        interval = f" (interval {figure(verdict.low)} to {figure(verdict.high)})"
    text = f"{verdict.outcome} {_asked(verdict)}: {figure(verdict.estimate, unit)}{interval}"
    return f"{text}; {verdict.reason}" if verdict.reason else text


def detectable_line(verdict: Verdict, metric: Metric | None) -> str | None:
    """Say which true value would have failed with 90 % probability."""
    if verdict.mde is None or _is_fact(verdict):
        return None
    if _is_ratio(verdict):
        return f"a true ratio under {figure(verdict.mde)} would have failed with 90 % probability"
    if metric is None:
        return None
    side = "under" if metric.higher_is_better else "over"
    return f"a true value {side} {figure(verdict.mde, metric.unit)} would have failed with 90 % probability"


def verdict_lines(result: Result) -> list[str]:
    """Return the verdicts, the worst first, each followed by what it could have detected."""
    lines: list[str] = []
    for verdict in sorted(result.verdicts, key=lambda verdict: _WORST_FIRST.index(verdict.outcome)):
        metric = _metric_of(verdict)
        lines.append(verdict_line(verdict, metric))
        detectable = detectable_line(verdict, metric)
        if detectable is not None:
            lines.append(f"  {detectable}")
    return lines


def measured_line(result: Result) -> str:
    """Say what was measured, in one line."""
    figures = [
        f"{METRICS[name].name.rsplit('_', 1)[0] if METRICS[name].unit == 'ms' else name} "
        f"{figure(value, METRICS[name].unit)}"
        for name in _SHOWN
        if (value := getattr(result, name)) is not None
    ]
    told = ", ".join(figures) or "nothing was measured"
    return f"{told}; {acceptance}" if (acceptance := acceptance_words(result)) else told


def acceptance_words(result: Result) -> str:
    """Say how many drafted tokens were accepted, with which speed varies; empty where nothing drafts."""
    if result.acceptance_rate is None:
        return ""
    text = f"acceptance {result.acceptance_rate:.1%}"
    if result.acceptance_per_position:
        text += f" ({', '.join(f'{share:.1%}' for share in result.acceptance_per_position)} by position)"
    if result.acceptance_length is not None:
        text += f", length {result.acceptance_length:.2f}"
    return text if result.wasted_tokens is None else f"{text}, {result.wasted_tokens:,} drafted tokens wasted"


def work_line(result: Result) -> str:
    """Say how much was measured and what was not valid."""
    valid = sum(request.valid for request in result.requests)
    text = f"{result.rounds} rounds, {valid} valid requests"
    if result.invalid:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(result.invalid.items()))
        text += f", not valid: {reasons}"
    if words := flag_words(result.flags):
        text += f"; flagged: {words}"
    return text


def server_line(result: Result) -> str:
    """Say which server it was, from its own facts."""
    facts = result.server
    name = str(facts.get("name", "server"))
    parts = [name]
    if (k := facts.get("k")) is not None and f"k={k}" not in name:
        parts.append(f"k={k}")
    if facts.get("model"):
        parts.append(f"model {facts['model']}")
    if facts.get("version"):
        parts.append(f"vLLM {facts['version']}")
    if (scale := facts.get("time_scale", 1)) != 1:
        parts.append(f"(its time runs {scale:g} times as fast)")
    if facts.get("url"):
        parts.append(f"at {facts['url']}")
    return " ".join(parts)


def result_lines(result: Result) -> list[str]:
    """Return everything said about one measurement, most important first.

    Each line of a simulator's says so before its first figure, so that none is quoted as a real one.
    """
    lines = [*verdict_lines(result), *result.notes]
    lines += [measured_line(result), work_line(result), server_line(result)]
    if any(verdict.constants == "measured" for verdict in result.verdicts):
        lines.append("judged by spreads measured on this machine (sparkperf calibrate)")
    elif not result.simulated and any(verdict.constants == "assumed" for verdict in result.verdicts):
        lines.append("judged by assumed spreads; sparkperf calibrate measures this machine's own")
    if result.against is not None:
        lines += [f"against {server_line(result.against)}: {measured_line(result.against)}"]
    return [f"{SIMULATED_WORD} {line}" for line in lines] if result.simulated else lines


def failure_text(result: Result) -> str:
    """Return the failure text of a test whose gate FAILed or ended in ERROR."""
    lines = result_lines(result)
    return "\n".join([*lines, SIMULATED] if result.simulated else lines)


def inconclusive_text(result: Result) -> str:
    """Return the one-line reason of a gate that proved neither side."""
    undecided = [
        verdict_line(verdict, _metric_of(verdict))
        for verdict in result.verdicts
        if verdict.outcome == "INCONCLUSIVE"
    ]
    text = "; ".join(undecided)
    return f"{SIMULATED_WORD} {text}" if result.simulated else text


def summary_lines(nodeid: str, result: Result) -> list[str]:
    """Return the lines of one gate in the terminal section; the tail of a log stays in the failure text."""
    return [nodeid, *("  " + line.partition("\n")[0] for line in result_lines(result))]


def _metric_of(verdict: Verdict) -> Metric | None:
    keyword = KEYWORDS.get(verdict.gate)
    return METRICS.get(keyword.metric or "") if keyword else None


def _asked(verdict: Verdict) -> str:
    if verdict.limit is None:
        return verdict.gate
    # A slowdown is asked for as the share that may be lost, and judged as the ratio that must be kept.
    asked = 1 - verdict.limit if verdict.gate.startswith("max_slowdown") else verdict.limit
    return f"{verdict.gate}={asked:.10g}"


def _is_fact(verdict: Verdict) -> bool:
    """Tell whether the figure was read once and has no interval."""
    return verdict.estimate is not None and verdict.low == verdict.high == verdict.estimate


def _is_ratio(verdict: Verdict) -> bool:
    return verdict.gate.partition("[")[0] in COMPARISONS
