"""The sampling of one test as a state machine: says what to send next, takes the figures, ends by itself.

It never sends, waits or reads a clock. A caller asks :meth:`Sampler.next_pass` for the next pass, sends its
requests in the given order, hands the figures to :meth:`Sampler.add` and repeats until there is no next pass:

    warm-up: whole passes until two successive ones agree, and no kernel was compiled in the last
    soak:    only where a GPU has a thermometer and no known plateau, until its temperature settles
    rounds:  the last pass before them is round 1; each claim is looked at after its planned rounds

One loop serves all claims of a test. A claim that is decided at a look stays as it is; sampling ends when all
are, or when the budget is spent. Rounds that turn out to have been a soak (the GPU warmed while a claim was
still open) are dropped for that claim: its window starts again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_sparkperf.core import reasons
from pytest_sparkperf.core.claim import Claim
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.heat import NO_HEAT, STILL_WARMING, UNREADABLE, HeatWatch, Thermal
from pytest_sparkperf.core.judge import Look, Terms, decide, half_widths, to_verdict, without_figures
from pytest_sparkperf.core.order import SUBJECT, Arm, Step, ab_order, looks_for, single_order
from pytest_sparkperf.core.quantile import check_budget, decide_quantile
from pytest_sparkperf.core.result import Verdict
from pytest_sparkperf.core.summary import Baseline, Summary, summarize
from pytest_sparkperf.core.taken import Figures, Taken
from pytest_sparkperf.core.warmup import WarmUp

PassKind = Literal["warm-up", "soak", "round"]

# Without a limit, sampling ends at this half width or after this many rounds.
_REPORT_HALF_WIDTH = 0.02
_REPORT_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """How one test is sampled.

    ``prompts``: the prompt of each cell (a request, or a burst). ``min_passes``: warm-up passes that make 8
    requests, at least 2. ``min_rounds``: go on to this many even when all is decided (a baseline is recorded
    from 8). ``requests_per_pass``: requests of one server in a pass, where a cell is a burst.
    ``steady_metric``: what warm-up watches; by default the decode rate, or else what a claim is about.
    ``gates``: limits of the session. ``settle``: wait for the temperature to settle whatever is claimed, and
    without a thermometer for as long as a soak may last.
    """

    prompts: tuple[int, ...]
    paired: bool = False
    max_rounds: int = 12
    min_rounds: int = 0
    min_passes: int = 2
    requests_per_pass: int | None = None
    steady_metric: str | None = None
    gates: int = 1
    thermal: Thermal = NO_HEAT
    constants: Constants = ASSUMED
    settle: bool = False


@dataclass(frozen=True, slots=True)
class Pass:
    """What to send next: every step once, in this order. ``index`` counts all passes from 0."""

    index: int
    kind: PassKind
    order: tuple[Step, ...]


@dataclass(slots=True)
class _Track:
    """One claim on its way; its window begins with round index ``start``, heat counts from ``start_pass``."""

    claim: Claim
    terms: Terms
    start: int = 0
    start_pass: int = 0
    verdict: Verdict | None = None

    @property
    def feels_heat(self) -> bool:
        """Could a cold or hot machine change this verdict? Alternation cancels it in an A/B."""
        return self.claim.heats and self.claim.kind != "paired"

    @property
    def reference_c(self) -> float | None:
        """The temperature of the baseline's runs, where they recorded one."""
        return None if self.terms.baseline is None else self.terms.baseline.temperature_c


class Sampler:
    """Samples for all claims of one test; see the module for the protocol."""

    def __init__(
        self,
        plan: Plan,
        claims: Sequence[Claim] = (),
        baselines: Mapping[str, Baseline] | None = None,
    ) -> None:
        self._plan = plan
        self._looks = looks_for(plan.max_rounds)
        self._tracks = [_Track(claim, self._terms(claim, baselines or {})) for claim in claims]
        self._watch = HeatWatch(plan.thermal, plan.constants)
        self._phase: Literal["warm-up", "soak", "round", "finished"] = "warm-up"
        self._passes = 0
        claimed = dict.fromkeys(claim.metric for claim in claims)
        self._warm_up = WarmUp(plan.min_passes, claimed, plan.steady_metric)
        self._rounds: list[Taken] = []
        self._warm_s = 0.0
        self._still_warming = False
        self._reason = ""

    # ------------------------------------------------------------------ protocol
    def next_pass(self) -> Pass | None:
        """Return what to send next, the same until its figures are added; None when sampling is over."""
        if self._phase == "finished":
            return None
        cells = len(self._plan.prompts)
        order = ab_order(self._passes, cells) if self._plan.paired else single_order(cells)
        return Pass(self._passes, self._phase, order)

    def add(
        self,
        values: Mapping[Step, Figures],
        *,
        requests: Mapping[str, Sequence[float | None]] | None = None,
        temperature_c: float | None = None,
        at_s: float = 0.0,
        still_compiling: bool = False,
    ) -> None:
        """Take the figures of the pass that :meth:`next_pass` gave.

        Every step needs an entry; a figure that was not measured is None. ``requests``: figures of every
        request of the server under test, for percentile limits (by default one per cell). ``at_s``: seconds
        since the load began, at the end of the pass; ``temperature_c``: of the GPU then. ``still_compiling``:
        the server's log shows kernels compiled during this pass.
        """
        current = self.next_pass()
        if current is None:
            raise RuntimeError("sampling is over: next_pass() gave None, nothing more can be added")
        if set(values) != set(current.order):
            raise ValueError(
                f"a pass needs figures for the steps {sorted(current.order)}, got {sorted(values)}"
            )
        taken = Taken(current.index, values, requests or {})
        self._passes += 1
        self._watch.read(temperature_c, at_s)
        if self._phase == "warm-up":
            self._add_warm_up(taken, at_s, still_compiling=still_compiling)
        elif self._phase == "soak":
            self._add_soak(taken, at_s)
        else:
            self._add_round(taken, at_s)

    def stop(self, reason: str) -> None:
        """End sampling from outside (a time budget); what is open becomes INCONCLUSIVE for that reason."""
        if self._phase != "finished":
            self._give_up(reason)

    # ------------------------------------------------------------------ answers
    @property
    def finished(self) -> bool:
        """Is there nothing more to send?"""
        return self._phase == "finished"

    @property
    def outcome(self) -> tuple[Verdict, ...]:
        """The verdicts in the order of the claims; raises RuntimeError while sampling goes on."""
        if self._phase != "finished":
            raise RuntimeError("sampling goes on: there are verdicts when next_pass() gives None")
        return tuple(track.verdict for track in self._tracks if track.verdict is not None)

    @property
    def state(self) -> str:
        """What is going on: ``warm-up``, ``soak``, ``round`` or ``finished``."""
        return self._phase

    @property
    def reason(self) -> str:
        """Why sampling ended without having measured what it should; empty otherwise."""
        return self._reason

    @property
    def round_passes(self) -> tuple[int, ...]:
        """The indexes of the passes that count as rounds: figures of a report come from these alone."""
        return tuple(taken.index for taken in self._kept)

    @property
    def rounds(self) -> int:
        """How many rounds were measured, without those that became a soak."""
        return len(self._kept)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any figure must know about heat."""
        seconds = self._plan.constants.max_soak_s
        warming = (STILL_WARMING.format(seconds=seconds),) if self._still_warming else ()
        return ((UNREADABLE,) if self._watch.unreadable else ()) + warming

    def summary(self, metric: str, arm: Arm | None = SUBJECT) -> Summary | None:
        """Summarize a metric of one server over the rounds (``arm=None``: of the log ratio B/A).

        None below two rounds and where a figure is missing.
        """
        return self._summarize(self._kept, metric, arm)

    # ------------------------------------------------------------------ warm-up and soak
    def _add_warm_up(self, taken: Taken, at_s: float, *, still_compiling: bool) -> None:
        step = self._warm_up.add(taken, still_compiling=still_compiling)
        if step == "given up":
            self._give_up(self._warm_up.reason)
        elif step == "warm":
            self._warm_s = at_s
            if self._needs_soak():
                self._phase = "soak"
                self._add_soak(taken, at_s)
            else:
                self._begin_rounds(taken, at_s)

    def _needs_soak(self) -> bool:
        return self._soakable() and (
            self._plan.settle or any(track.feels_heat and track.reference_c is None for track in self._tracks)
        )

    def _soakable(self) -> bool:
        return self._watch.mode == "soak" or (self._plan.settle and self._watch.mode == "assumed")

    def _add_soak(self, taken: Taken, at_s: float) -> None:
        settled = not self._soakable() or self._watch.settled()
        spent = at_s - self._warm_s >= self._plan.constants.max_soak_s
        if settled or spent:
            self._still_warming = not settled
            self._begin_rounds(taken, at_s)

    # ------------------------------------------------------------------ rounds
    def _begin_rounds(self, taken: Taken, at_s: float) -> None:
        self._phase = "round"
        for track in self._tracks:
            track.start_pass = taken.index
        self._add_round(taken, at_s)

    def _add_round(self, taken: Taken, at_s: float) -> None:
        self._rounds.append(taken)
        for track in self._tracks:
            if track.verdict is None:
                self._advance(track, at_s)
        if self._tracks:
            decided = all(track.verdict is not None for track in self._tracks)
            done = decided and self.rounds >= self._plan.min_rounds
        else:
            done = self._report_is_exact()
        if done:
            self._phase = "finished"

    def _advance(self, track: _Track, at_s: float) -> None:
        """Take the newest round into a claim's window; at a look decide, go on or start again."""
        missing = self._rounds[-1].missing(track.claim)
        if missing:
            reason = reasons.not_measured(track.claim.metric, len(self._rounds) - track.start, missing)
            track.verdict = without_figures(track.claim, "ERROR", reason, len(self._rounds) - track.start)
            return
        if len(self._rounds) - track.start not in self._looks:
            return
        look = self._look(track)
        if look.outcome not in ("PASS", "FAIL") and self._heating(track, at_s):
            track.start, track.start_pass = len(self._rounds), self._rounds[-1].index
        elif look.outcome != "MORE":
            track.verdict = self._verdict(track, look, look.reason)

    def _heating(self, track: _Track, at_s: float) -> bool:
        """Did the GPU warm within this claim's window, with time left to let it?"""
        constants = self._plan.constants
        if not track.feels_heat:
            return False
        young = at_s - self._warm_s < constants.max_soak_s
        return young and self._watch.rise_c(track.start_pass) > constants.max_rise_c

    def _look(self, track: _Track) -> Look:
        claim, window = track.claim, self._rounds[track.start :]
        heat = self._watch.allowance(track.reference_c)
        if claim.quantile is not None:
            values = [value for taken in window for value in taken.each_request(claim.metric)]
            figures = [value for value in values if value is not None]
            return decide_quantile(figures, claim, len(window), track.terms, heat)
        summary = self._summarize(window, claim.metric, None if claim.kind == "paired" else SUBJECT)
        assert summary is not None  # a round that lacks a figure has ended the claim
        return decide(summary, claim, track.terms, heat)

    def _report_is_exact(self) -> bool:
        looks = looks_for(min(_REPORT_ROUNDS, self._plan.max_rounds))
        n = len(self._rounds)
        if n >= looks[-1]:
            return n >= self._plan.min_rounds
        summary = self.summary(self._warm_up.metric, None if self._plan.paired else SUBJECT)
        if n not in looks or summary is None or n < self._plan.min_rounds:
            return False
        terms = Terms(self._plan.constants.of(self._warm_up.metric), looks)
        return half_widths("absolute", summary.sd, n, terms, terms.constants.alpha)[0] <= _REPORT_HALF_WIDTH

    def _give_up(self, reason: str) -> None:
        self._phase, self._reason = "finished", reason
        for track in self._tracks:
            if track.verdict is None:
                track.verdict = self._unfinished(track, reason)

    def _unfinished(self, track: _Track, reason: str) -> Verdict:
        """Return INCONCLUSIVE with the figures of the open window, where it has two rounds."""
        if len(self._rounds) - track.start < 2:
            return without_figures(track.claim, "INCONCLUSIVE", reason, len(self._rounds) - track.start)
        return self._verdict(track, replace(self._look(track), outcome="INCONCLUSIVE"), reason)

    def _verdict(self, track: _Track, look: Look, reason: str) -> Verdict:
        notes = self.notes if track.feels_heat else ()
        verdict = to_verdict(track.claim, look, reasons.joined(reason, *notes))
        return replace(verdict, constants=self._plan.constants.source)

    # ------------------------------------------------------------------ windows and terms
    @property
    def _kept(self) -> list[Taken]:
        """The rounds of the youngest window; all of them where it has just begun."""
        start = max((track.start for track in self._tracks), default=0)
        return self._rounds[start:] or self._rounds

    def _summarize(self, window: Sequence[Taken], metric: str, arm: Arm | None) -> Summary | None:
        series = [taken.speeds(metric, arm) for taken in window]
        complete = [row for row in series if row is not None]
        if len(complete) < max(2, len(series)):
            return None
        return summarize(complete, self._plan.prompts, self._plan.constants.of(metric))

    def _terms(self, claim: Claim, baselines: Mapping[str, Baseline]) -> Terms:
        plan = self._plan
        if claim.kind == "paired" and not plan.paired:
            raise ConfigError(f"{claim.gate} compares two servers: name the other one with against=...")
        baseline = None
        if claim.kind == "baseline":
            baseline = baselines.get(claim.gate, baselines.get(claim.metric))
        if claim.kind == "baseline" and baseline is None:
            raise ConfigError(
                f"{claim.gate} needs a baseline of {claim.metric} on this hardware: record one with "
                "--sparkperf-record, or compare with a second server (against=...)"
            )
        terms = Terms(plan.constants.of(claim.metric), self._looks, plan.gates, baseline)
        if claim.quantile is not None:
            check_budget(claim, plan.max_rounds * (plan.requests_per_pass or len(plan.prompts)), terms)
        return terms
