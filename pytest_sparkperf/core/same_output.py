"""Judges a set of compared answers: is the output with speculative decoding the same as without?

The control is the server without it against itself. What differs there as much cannot be laid at the
speculation's door. Where the control is clean, one divergent answer is one too many; where it is not,
Fisher's exact test says whether the speculation's count is larger, and between "no more than the control" and
"significantly more" the answer is INCONCLUSIVE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from pytest_sparkperf.core.equivalence import Comparison, Kind
from pytest_sparkperf.core.result import Outcome, Verdict
from pytest_sparkperf.core.toolcheck import Finding
from pytest_sparkperf.core.validity import SERVER_FAULTS

GATE = "same_output"
ENGINE_DEATH = "engine_death"
ALPHA = 0.05
# A reason names so many answers; the report lists all.
_MOST_TEXTS = 3

Worse = Literal["no", "unsettled", "yes"]

# Never excused by what off does: off answered, or there would be nothing to compare with.
_SERVER_FAULTS = SERVER_FAULTS | {ENGINE_DEATH}
_OUTCOMES: Mapping[Worse, Outcome] = MappingProxyType(
    {"no": "PASS", "unsettled": "INCONCLUSIVE", "yes": "FAIL"}
)


@dataclass(frozen=True, slots=True)
class Item:
    """One request on all arms: ``subject`` is off against on, ``control`` off against off.

    ``launch`` is off against a second start of off; each is None where it was not compared. ``off_faults``
    are those of the off answer with more of them. ``on_stable`` tells whether on gave its answer again.
    """

    name: str
    subject: Comparison | None
    control: Comparison | None = None
    launch: Comparison | None = None
    on_faults: tuple[Finding, ...] = ()
    off_faults: tuple[Finding, ...] = ()
    on_stable: bool | None = None

    @property
    def systematic(self) -> bool:
        """Off agrees with itself, on agrees with itself, and they differ: the difference is no noise."""
        stable = self.control is not None and self.control.kind == "equal" and self.on_stable is True
        return stable and self.subject is not None and self.subject.kind != "equal"


@dataclass(frozen=True, slots=True)
class Line:
    """One set of requests under one condition, compared; the outcome None is a line that is not judged."""

    name: str
    items: tuple[Item, ...]
    outcome: Outcome | None
    reason: str = ""

    def count(self, kind: Kind) -> int:
        """Return how many answers with speculation are of a kind."""
        return sum(item.subject is not None and item.subject.kind == kind for item in self.items)


def worse_than_control(control: int, subject: int, answers: int) -> Worse:
    """Say whether ``subject`` of a number of answers is more than ``control`` of as many.

    No where it is not larger; yes where the control is clean or the one-sided p of Fisher's test is at most
    5 %; else unsettled.
    """
    if subject <= control:
        return "no"
    return "yes" if control == 0 or fisher_p(control, subject, answers) <= ALPHA else "unsettled"


def fisher_p(control: int, subject: int, answers: int) -> float:
    """Return the probability of at least ``subject`` of the positives on one side of two equal groups."""
    positives = control + subject
    ways = math.comb(2 * answers, positives)
    tail = range(subject, min(positives, answers) + 1)
    return sum(math.comb(answers, count) * math.comb(answers, positives - count) for count in tail) / ways


def judge_line(name: str, items: Sequence[Item], *, strict: bool = False) -> Line:
    """Judge one set of answers; with ``strict`` a near-tie counts as a divergence.

    Faults of single answers (broken JSON, tool syntax in the content, ...) are counted on both sides and
    judged alike; a fault of the server with speculation fails. Answers that only a second start of off
    excuses become ``launch``.
    """
    failing: tuple[Kind, ...] = ("divergent", "near_tie") if strict else ("divergent",)
    items = tuple(items)
    faults = _judge_faults(items)
    control = sum(_is(item.control, failing) for item in items)
    subject = sum(_is(item.subject, failing) for item in items)
    worse = worse_than_control(control, subject, len(items))
    launches = [item.launch for item in items if item.launch is not None]
    if worse != "no" and launches:
        again = sum(_is(launch, failing) for launch in launches)
        worse = worse_than_control(max(control, again), subject, len(items))
        if worse == "no":
            items = tuple(_as_launch(item, failing) for item in items)
    texts = _divergence_text(control, subject, len(items), worse, bool(launches))
    reasons = [text for text in (faults[1], texts) if text]
    return Line(name, items, _worst([faults[0], _OUTCOMES[worse]]), "; ".join(reasons))


def needs_second_start(line: Line) -> bool:
    """Tell whether a second start of off could still excuse a line that does not pass."""
    open_items = [item for item in line.items if item.launch is None]
    return line.outcome in ("FAIL", "INCONCLUSIVE") and any(
        item.subject is not None and item.subject.kind not in ("equal", "launch") for item in open_items
    )


def not_judged(name: str, why: str) -> Line:
    """Return a line that says why it has no outcome."""
    return Line(name, (), None, why)


def failed_line(name: str, outcome: Outcome, why: str, items: Sequence[Item] = ()) -> Line:
    """Return a line that could not be compared at all."""
    return Line(name, tuple(items), outcome, why)


def verdict_of(lines: Sequence[Line]) -> Verdict:
    """Return the verdict over all lines: the worst of them, its lines named; ERROR where none was judged."""
    judged = [line for line in lines if line.outcome is not None]
    if not judged:
        return _verdict("ERROR", "no answers were compared, so nothing is known about the output")
    outcome = _worst([line.outcome for line in judged])
    if outcome == "PASS":
        answers = sum(len(line.items) for line in judged)
        equal = sum(line.count("equal") for line in judged)
        return _verdict("PASS", f"{equal} of {answers} answers equal{_others(judged)}")
    named = [f"{line.name}: {line.reason}" for line in judged if line.outcome == outcome]
    return _verdict(outcome, " | ".join(named))


def _verdict(outcome: Outcome, reason: str) -> Verdict:
    return Verdict(GATE, outcome, None, None, None, None, None, reason)


def _others(lines: Sequence[Line]) -> str:
    kinds: tuple[tuple[Kind, str], ...] = (
        ("near_tie", "near-ties"),
        ("launch", "as different between two starts of off"),
        ("divergent", "no worse than off against itself"),
    )
    counted = [(sum(line.count(kind) for line in lines), words) for kind, words in kinds]
    return "".join(f", {count} {words}" for count, words in counted if count)


def _judge_faults(items: Sequence[Item]) -> tuple[Outcome, str]:
    on = [item for item in items if item.on_faults]
    off = sum(bool(item.off_faults) for item in items)
    broke = [item for item in on if item.on_faults[0].name in _SERVER_FAULTS]
    worse = "yes" if broke else worse_than_control(off, len(on), len(items))
    if worse == "no":
        return "PASS", ""
    total = len(items)
    named = broke or [item for item in on if not item.off_faults]
    texts = [f"{item.name}: {item.on_faults[0]}" for item in named]
    more = [f"and {len(texts) - _MOST_TEXTS} more"] if len(texts) > _MOST_TEXTS else []
    counts = f"{total - len(on)} of {total} answers valid, off {total - off} of {total}"
    return _OUTCOMES[worse], f"{counts} ({'; '.join(texts[:_MOST_TEXTS] + more)})"


def _divergence_text(control: int, subject: int, answers: int, worse: Worse, restarted: bool) -> str:
    if not subject:
        return ""
    counts = f"{subject} of {answers} answers diverge"
    baseline = f"off against itself {control}"
    if worse == "no":
        return f"{counts}, no worse than {'a second start of off' if restarted else baseline}"
    if worse == "yes":
        return f"{counts}, {baseline}"
    return f"{counts}, {baseline}: too few answers to tell these apart, compare more prompts"


def _as_launch(item: Item, failing: tuple[Kind, ...]) -> Item:
    if item.subject is None or item.subject.kind not in failing:
        return item
    return replace(item, subject=replace(item.subject, kind="launch"))


def _is(comparison: Comparison | None, kinds: tuple[Kind, ...]) -> bool:
    return comparison is not None and comparison.kind in kinds


def _worst(outcomes: Sequence[Outcome | None]) -> Outcome:
    order: tuple[Outcome, ...] = ("ERROR", "FAIL", "INCONCLUSIVE", "PASS")
    return next(outcome for outcome in order if outcome in outcomes)
