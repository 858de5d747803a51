"""Writes the outcome of an equivalence run as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pytest_sparkperf.core.acceptance import NOTHING_ACCEPTED, Acceptance
from pytest_sparkperf.core.equivalence import NEAR_TIE_NATS, Comparison, Difference
from pytest_sparkperf.core.logprobs import Choice
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.same_output import Item, Line, verdict_of

BATCH_INVARIANT = (
    "exact equality: VLLM_BATCH_INVARIANT=1 on both servers, where vLLM supports it (about half the speed)"
)
NEAR_TIE_RULE = (
    f"near-tie: both answers had both tokens among their best, at most {NEAR_TIE_NATS:g} nats apart in each, "
    "and saw each of them alike within as much"
)

_NO_WORDS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EquivalenceReport:
    """Everything an equivalence run found; ``names`` are those of the arms, without speculation first.

    ``flags`` holds the flags that occurred by arm, ``deaths`` how a server died, with its log's last lines.
    """

    lines: tuple[Line, ...]
    names: tuple[str, str] = ("off", "on")
    acceptance: Acceptance | None = None
    flags: Mapping[str, str] = field(default_factory=lambda: _NO_WORDS)
    deaths: tuple[str, ...] = ()
    second_start: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict ``same_output`` over all lines."""
        return verdict_of(self.lines)


def report_lines(report: EquivalenceReport) -> tuple[str, ...]:
    """Return the report, a line per set of requests and one per answer that is not equal."""
    return tuple(_lines(report))


def describe(comparison: Comparison | None, names: tuple[str, str] = ("off", "on")) -> str:
    """Say in one line how two answers compare."""
    if comparison is None:
        return "not compared"
    kind = comparison.kind.replace("_", "-")
    if comparison.difference is None:
        return f"{kind} over {comparison.agreed} tokens"
    return f"{kind} {_where(comparison.difference)}{_what(comparison.difference, names)}"


def _lines(report: EquivalenceReport) -> Iterator[str]:
    first, second = report.names
    yield f"output equivalence at temperature 0: {first} against {second}"
    for line in report.lines:
        yield f"  {line.name}: {_summary(line)}"
        for item in line.items:
            yield from (f"    {text}" for text in _item_texts(item, report.names))
    if report.acceptance is not None:
        yield f"  {_acceptance(report.acceptance)}"
    yield from (f"  flags of {arm}: {words}" for arm, words in report.flags.items() if words)
    if report.second_start:
        yield f"  {first} was started a second time, since a divergence would have failed the test"
    kinds = {item.subject.kind for line in report.lines for item in line.items if item.subject}
    if "near_tie" in kinds:
        yield f"  {NEAR_TIE_RULE}"
    if kinds - {"equal"}:
        yield f"  {BATCH_INVARIANT}"
    yield from (f"  {death}" for death in report.deaths)


def _summary(line: Line) -> str:
    if line.outcome is None:
        return f"not judged: {line.reason}"
    counts = ""
    if line.items:
        control = [item.control for item in line.items if item.control is not None]
        equal = sum(one.kind == "equal" for one in control)
        counts = (
            f" {line.count('equal')} of {len(line.items)} equal, off against itself {equal} of {len(control)}"
        )
        counts += _span([item.subject.agreed for item in line.items if item.subject is not None])
    return f"{line.outcome}{counts}" + (f": {line.reason}" if line.reason else "")


def _span(agreed: list[int]) -> str:
    if not agreed:
        return ""
    least, most = min(agreed), max(agreed)
    return f", the same over {most} tokens" if least == most else f", the same over {least} to {most} tokens"


def _item_texts(item: Item, names: tuple[str, str]) -> Iterator[str]:
    if item.subject is not None and item.subject.kind != "equal":
        suffix = ", again and again" if item.systematic else ""
        yield f"{item.name}: {describe(item.subject, names)}{suffix}"
    if item.control is not None and item.control.kind != "equal":
        yield f"{item.name}: {names[0]} against itself {describe(item.control, ('first', 'again'))}"
    known = {str(finding) for finding in item.off_faults}
    for finding in item.on_faults:
        where = "both arms" if str(finding) in known else names[1]
        yield f"{item.name}: {finding} ({where})"


def _where(difference: Difference) -> str:
    if difference.channel == "tokens":
        return f"at token {difference.position}"
    return f"in {difference.channel.replace('_', ' ')} at {difference.unit} {difference.position}"


def _what(difference: Difference, names: tuple[str, str]) -> str:
    parts = []
    if difference.first is not None or difference.second is not None:
        parts.append(f"{_token(difference.first)} {names[0]}, {_token(difference.second)} {names[1]}")
        gaps = (difference.first_gap, difference.second_gap)
        parts.append(f"gap {_nats(gaps[0])} and {_nats(gaps[1])}")
        tops = [choice.top2_gap if choice else None for choice in (difference.first, difference.second)]
        parts.append(f"top two {_nats(tops[0])} and {_nats(tops[1])} apart")
    parts += difference.names
    return f": {'; '.join(parts)}" if parts else ""


def _token(choice: Choice | None) -> str:
    return "unknown" if choice is None else f"{choice.token!r} ({_nats(choice.logprob)})"


def _nats(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _acceptance(acceptance: Acceptance) -> str:
    if acceptance.draft_tokens and not acceptance.accepted_tokens:
        return NOTHING_ACCEPTED.format(drafted=acceptance.draft_tokens)
    rate, length = acceptance.rate, acceptance.length
    text = "acceptance unknown" if rate is None else f"acceptance {rate:.3f}"
    return text + ("" if length is None else f", length {length:.3f}")
