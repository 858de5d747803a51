"""Sends a run of many requests, in a closed loop of workers or an open loop on a schedule, and judges it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pytest_sparkperf.adapters.client import Recording
from pytest_sparkperf.core.arrivals import arrival_times
from pytest_sparkperf.core.budget import Budget
from pytest_sparkperf.core.burst import common_rule
from pytest_sparkperf.core.collect import Measured, collect
from pytest_sparkperf.core.design import claims_of
from pytest_sparkperf.core.errors import MeasurementError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.heat import HeatWatch
from pytest_sparkperf.core.judge import without_figures
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.longrun import Segment, segment_figures, segments_of
from pytest_sparkperf.core.order import SUBJECT
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.result import Outcome, RequestResult, Result, TpotRule, Verdict
from pytest_sparkperf.core.run_verdicts import (
    MOST_INVALID,
    coverage,
    held_back,
    judge_run,
    late,
    queue_note,
    sending,
    too_short,
)
from pytest_sparkperf.core.sampling import Sampler
from pytest_sparkperf.core.taken import Taken
from pytest_sparkperf.core.validity import SENTENCES
from pytest_sparkperf.experiment.measure import Conditions
from pytest_sparkperf.experiment.passes import PassRunner
from pytest_sparkperf.experiment.results import counted_verdicts, unmeasured
from pytest_sparkperf.experiment.shots import Burst
from pytest_sparkperf.experiment.side import Side

# A request of an open loop is built so long before it is due.
_AHEAD_S = 0.02
# An event loop's timers are late by up to a millisecond, since it waits in whole ones.
_TICK_S = 0.001


@dataclass(slots=True)
class Shooter:
    """Sends the requests of a run by the server's clock; ``lags_s`` is how late each was written.

    ``held`` counts those that waited for a place beyond their time although the load has no cap.
    """

    side: Side
    load: Load
    stop: Callable[[], bool] = lambda: False
    recordings: list[tuple[Prompt, Recording]] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)
    most_in_flight: int = 0
    held: int = 0
    _in_flight: int = 0

    async def send(self) -> None:
        """Send all requests, or those until it is time to stop; return when the last has ended."""
        await (self._closed_loop() if self.load.request_rate is None else self._open_loop())

    async def _closed_loop(self) -> None:
        numbers = iter(range(self.load.requests or 0))

        async def worker() -> None:
            for number in numbers:
                if self.stop():
                    return
                await self._one(number, self.side.clock())

        async with asyncio.TaskGroup() as workers:
            for _ in range(self.load.concurrency):
                workers.create_task(worker())

    async def _open_loop(self) -> None:
        slots = asyncio.Semaphore(self.load.concurrency)
        begin_s = self.side.clock()
        async with asyncio.TaskGroup() as requests:
            for number, after_s in enumerate(self.schedule()):
                due_s = begin_s + after_s
                await self._sleep_until(due_s - _AHEAD_S * self.side.server.time_scale)
                if self.stop():
                    return
                requests.create_task(self._when_free(number, due_s, slots))

    def schedule(self) -> tuple[float, ...]:
        """Return when each request of an open loop is due, in seconds from the first."""
        load = self.load
        assert load.requests is not None
        assert load.request_rate is not None
        draw = random.Random(f"{load.seed}-arrivals").gammavariate
        return arrival_times(load.requests, load.request_rate, load.burstiness, draw)

    async def _sleep_until(self, due_s: float) -> None:
        left_s = due_s - self.side.clock()
        await asyncio.sleep(max(0.0, left_s) / self.side.server.time_scale)

    async def _until(self, due_s: float) -> None:
        """Wait to the moment; in the last of it other streams are read on, turn by turn."""
        await self._sleep_until(due_s - _TICK_S * self.side.server.time_scale)
        while self.side.clock() < due_s:  # noqa: ASYNC110 - what comes is a moment, which no event tells
            await asyncio.sleep(0)

    async def _when_free(self, number: int, due_s: float, slots: asyncio.Semaphore) -> None:
        waits = slots.locked()
        async with slots:
            held = waits and self.side.clock() > due_s
            if held and not self.load.capped:
                self.held += 1
            # One that a cap held back was due when another ended: the cap is part of the load.
            await self._one(number, self.side.clock() if held and self.load.capped else due_s)

    async def _one(self, number: int, due_s: float) -> None:
        async def when() -> None:
            await self._until(due_s)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)

        prompt = self.side.prompts[number % len(self.side.prompts)]
        recording = await self.side.record(prompt, when)
        self._in_flight -= 1
        self.lags_s.append(recording.written_s - due_s)
        self.recordings.append((prompt, recording))


class LongRun:
    """One run on one server: warmed up by bursts, then measured as a whole."""

    def __init__(self, side: Side, spec: GateSpec, conditions: Conditions) -> None:
        self._side = side
        self._spec = spec
        self._load = spec.load
        self._conditions = conditions
        self._claims = claims_of(spec)
        self._budget = Budget(spec.budget_s, conditions.last_pass_s)
        self._plan = conditions.plan(spec)
        self._heat = HeatWatch(self._plan.thermal, self._plan.constants)
        self._begun_s = 0.0

    async def run(self) -> Result:
        """Warm up, send everything, judge; what cannot be measured is an ERROR of every limit."""
        self._begun_s = time.monotonic()
        try:
            async with asyncio.timeout(self._budget.longest_s):
                reason = await self._warm_up()
                return self._open(reason) if reason else await self._watched()
        except MeasurementError as error:
            return self._without("ERROR", str(error))
        except TimeoutError:
            return self._without("INCONCLUSIVE", self._budget.overrun())

    async def _watched(self) -> Result:
        """Measure while somebody looks at the machine; a run is too long to be sent again for its sake."""
        watch = self._conditions.watch
        watch.begin()
        result = await self.measure()
        fault = watch.fault()
        if fault is not None:
            raise MeasurementError(fault)
        return result

    async def _warm_up(self) -> str:
        """Send bursts until the server is steady; return why it never became so."""
        thermal = self._plan.thermal
        sampler = Sampler(replace(self._plan, settle=thermal.mode == "soak"))
        runner = PassRunner({SUBJECT: self._side}, watch=self._conditions.watch)
        while sampler.state in ("warm-up", "soak") and (step := sampler.next_pass()) is not None:
            values = await runner.send(step)
            temperature_c = self._read_heat()
            sampler.add(
                values,
                requests=runner.each_request(),
                temperature_c=temperature_c,
                at_s=self._seconds(),
                still_compiling=runner.compiling,
            )
        return sampler.reason

    async def measure(self) -> Result:
        """Send everything and judge, on a server that is warm; raises MeasurementError."""
        self._begun_s = self._begun_s or time.monotonic()
        shooter = Shooter(self._side, self._load, lambda: self._seconds() > self._budget.seconds)
        index = self._side.records[-1].index + 1 if self._side.records else 0
        self._conditions.watch.begin()
        await self._side.begin(index)
        begun_s = self._side.clock()
        await shooter.send()
        seconds = self._side.clock() - begun_s
        # Parsed when all are over: parsing one would delay the stamps of the others.
        answers = [(prompt, self._side.possible(one.result())) for prompt, one in shooter.recordings]
        self._side.keep(Burst(tuple(answer for _, answer in answers)))
        await self._side.end()
        self._read_heat()
        fault = self._side.fault() or self._conditions.watch.fault() or await self._spoiled(answers)
        lags_ms = [1000 * lag_s / self._side.server.time_scale for lag_s in shooter.lags_s]
        # In a closed loop nothing is due at a time: a late request is one that the client took long to write.
        if lags_ms and self._load.request_rate is not None:
            held = held_back(shooter.held, len(answers), self._load)
            fault = fault or held or late(lags_ms)
        if fault is not None:
            raise MeasurementError(fault)
        return self._judged(index, [answer for _, answer in answers], self._notes(shooter, lags_ms), seconds)

    async def _spoiled(self, answers: list[tuple[Prompt, RequestResult]]) -> str | None:
        """Say that too many requests were not valid, or one of them not when it was sent again either."""
        invalid = [(prompt, answer) for prompt, answer in answers if not answer.valid]
        if len(invalid) > MOST_INVALID * len(answers):
            reason = invalid[0][1].reason or "not valid"
            return (
                f"{len(invalid)} of {len(answers)} requests of the run were not valid, the first of them "
                f"{reason}: {SENTENCES.get(reason, '')}"
            )
        for prompt, first in invalid:
            again = self._side.possible((await self._side.record(prompt)).result())
            if not again.valid:
                reason = again.reason or "not valid"
                seen = f" Seen: {again.error or first.error}" if again.error or first.error else ""
                return f"a request failed twice ({reason}): {SENTENCES.get(reason, '')}{seen}"
        return None

    # ------------------------------------------------------------------ the result
    def _judged(
        self, index: int, answers: list[RequestResult], notes: tuple[str, ...], seconds: float
    ) -> Result:
        valid = [answer for answer in answers if answer.valid]
        segments = segments_of(self._load, valid)
        size = len(segments[0].requests) if segments else 0
        said = (coverage(self._load, len(answers), len(segments), size, seconds), *notes)
        if not segments:
            return self._open(too_short(self._load, len(answers)), said)
        rule = common_rule([one for segment in segments for one in segment.requests])
        rounds = [self._taken(number, segment, valid, rule) for number, segment in enumerate(segments)]
        verdicts = judge_run(rounds, self._claims, self._plan, self._heat.allowance(None))
        burst = self._side.records[-1].bursts[0]
        everything = self._side.everything()
        measured = Measured(
            cells=[taken.values[0, SUBJECT] for taken in rounds],
            requests=[one for segment in segments for one in segment.requests],
            spoiled=[one for one in burst.requests if not one.valid],
            attempts=sum(len(one.attempts) for one in everything),
            faults=sum(one.server_faults for one in everything),
            rounds=len(segments),
            rule=rule,
            acceptance=self._side.acceptance((index,)),
            end_ids=self._side.end_ids,
        )
        verdicts += counted_verdicts((self._side,), self._spec)
        return replace(collect(measured, verdicts, self._side.facts()), notes=(*self._side.notes(), *said))

    def _taken(self, number: int, segment: Segment, valid: list[RequestResult], rule: TpotRule) -> Taken:
        figures = segment_figures(segment, valid, rule, self._load.slo)
        each = {
            "ttft_ms": [one.ttft_ms for one in segment.requests],
            "tpot_ms": [one.tpot_ms_by(rule) for one in segment.requests],
            "e2el_ms": [one.e2el_ms for one in segment.requests],
        }
        return Taken(number, {(0, SUBJECT): figures}, each)

    def _notes(self, shooter: Shooter, lags_ms: list[float]) -> tuple[str, ...]:
        notes = []
        if self._load.request_rate is not None and lags_ms:
            notes.append(sending(lags_ms, shooter.most_in_flight))
        most = self._side.server.facts.get("max_num_seqs")
        if isinstance(most, int) and not self._load.capped and shooter.most_in_flight > most:
            notes.append(queue_note(shooter.most_in_flight, most))
        return tuple(notes)

    def _open(self, reason: str, notes: tuple[str, ...] = ()) -> Result:
        return self._without("INCONCLUSIVE", reason, notes)

    def _without(self, outcome: Outcome, reason: str, notes: tuple[str, ...] = ()) -> Result:
        """Return a result without figures."""
        verdicts: list[Verdict] = [without_figures(claim, outcome, reason) for claim in self._claims]
        verdicts = verdicts or [unmeasured(outcome, reason)]
        verdicts += counted_verdicts((self._side,), self._spec)
        return Result(
            verdicts=tuple(verdicts),
            server=self._side.facts(),
            simulated=self._side.server.simulated,
            notes=(*self._side.notes(), *notes),
        )

    def _read_heat(self) -> float | None:
        temperature_c = self._conditions.thermometer()
        self._heat.read(temperature_c, self._seconds())
        return temperature_c

    def _seconds(self) -> float:
        return time.monotonic() - self._begun_s
