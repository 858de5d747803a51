"""One gate that is judged by stored runs, or recorded as one: looked up, measured accordingly, kept."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts, clock_of, stream_request
from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.adapters.store import Files, FolderStore
from pytest_sparkperf.core import lookup
from pytest_sparkperf.core.baseline import TIME_FORMAT, Record, RunState, Work
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.evidence import Evidence
from pytest_sparkperf.core.fingerprint import facts_of, public
from pytest_sparkperf.core.frozen import EMPTY, FrozenMap
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.lookup import Found, GateIdentity, MissingPolicy, Problem
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.result import Result, TpotRule, Verdict
from pytest_sparkperf.core.standard import (
    Standard,
    baseline_claims,
    beside,
    of_other_work,
    standard_of,
    unjudged,
)
from pytest_sparkperf.core.validity import SENTENCES
from pytest_sparkperf.core.variant import Variant, serve_options
from pytest_sparkperf.core.workload import request_body, workload_digest
from pytest_sparkperf.experiment.baselines import Recorded, load_baseline, record
from pytest_sparkperf.experiment.known import Known
from pytest_sparkperf.experiment.measure import Conditions
from pytest_sparkperf.experiment.results import unmeasured

# Enough for a second event, which shows how the server counts.
_FIRST_TOKENS = 8
_RECORD = "--sparkperf-record"
Hook = Callable[[Variant, Mapping[str, Any]], Mapping[str, Any]]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where the stored runs of a session are, and what is done with them.

    ``store`` is where this session records, None where it does not; ``batch`` marks its records as one set.
    ``hook`` adds facts of the user's.
    """

    files: Files
    missing: MissingPolicy = "fail"
    store: FolderStore | None = None
    commit: str | None = None
    hook: Hook = field(default=lambda _variant, _facts: {})
    now: Callable[[], datetime] = _now
    batch: str | None = None


async def first_rule(server: Server, load: Load, prompt: Prompt) -> TpotRule | Problem:
    """Ask the server for a few tokens: by which TPOT rule can its answers be measured?"""
    short = replace(load, output_tokens=min(load.output_tokens, _FIRST_TOKENS))
    body = request_body(short, prompt, model=server.model, salt=uuid.uuid4().hex)
    request = GenerationRequest(load.endpoint, body, prompt_name=prompt.name, k=server.k)
    clock = clock_of(server.time_scale)
    timeouts = Timeouts.of_silence(server.silence_timeout_s).scaled(server.time_scale)
    async with open_async_client(server.url, api_key=server.api_key) as client:
        for _ in range(2):
            answer = await stream_request(client, request, timeouts=timeouts, clock=clock)
            if answer.valid:
                return answer.tpot_rule
    reason = answer.reason or "not valid"
    seen = f" Seen: {answer.error}" if answer.error else ""
    return lookup.broken(f"a first request failed twice ({reason}): {SENTENCES.get(reason, '')}{seen}")


def work_of(
    variant: Variant, server: Server, load: Load, prompts: Sequence[Prompt], rule: TpotRule | None
) -> Work:
    """Return what a run must have in common with a stored one."""
    method = server.facts.get("speculative_method") or variant.speculative.get("method")
    return Work(
        model=public(server.model),
        k=server.k,
        speculator=None if server.k == 0 else method,
        workload=workload_digest(load, prompts),
        metric_rule=rule,
    )


@dataclass(frozen=True, slots=True)
class StoredGate:
    """One gate whose claims need stored runs; ``basis`` is what was found of them."""

    keeping: Keeping
    spec: GateSpec
    variant: Variant
    server: Server
    known: Known
    work: Work
    basis: Found | Problem
    rule: TpotRule | None = None
    identity: GateIdentity | None = None
    hooked: Mapping[str, Any] = EMPTY

    @classmethod
    def open(
        cls,
        keeping: Keeping,
        test: str,
        spec: GateSpec,
        on: tuple[Variant, Server, Known],
        prompts: Sequence[Prompt],
        rule: TpotRule | Problem,
    ) -> StoredGate:
        """Look up what a gate is judged by; raises ConfigError where git fails or a hook's facts are none."""
        variant, server, known = on
        sound = None if isinstance(rule, Problem) else rule
        work = work_of(variant, server, spec.load, prompts, sound)
        if isinstance(rule, Problem):
            return cls(keeping, spec, variant, server, known, work, rule)
        if isinstance(known.machine, Problem):
            return cls(keeping, spec, variant, server, known, work, known.machine)
        metrics = tuple(dict.fromkeys(claim.metric for claim in baseline_claims(spec)))
        identity = GateIdentity(test, known.machine, work, metrics)
        basis = load_baseline(keeping.files, identity, keeping.now())
        hooked = keeping.hook(variant, server.facts)
        return cls(keeping, spec, variant, server, known, work, basis, rule, identity, hooked)

    @property
    def records(self) -> bool:
        """Is this run to become a stored one, and can it?"""
        usable = isinstance(self.basis, Found) or self.basis.kind in lookup.RECORDABLE
        return self.keeping.store is not None and self.identity is not None and usable

    @property
    def standard(self) -> Standard:
        """What is sampled and judged."""
        return standard_of(self.spec, self.basis if isinstance(self.basis, Found) else None)

    @property
    def measures(self) -> bool:
        """Is there anything to measure for? Without a baseline there may be no limit left."""
        return self.records or bool(self.standard.claims)

    def conditions(self, usual: Conditions) -> Conditions:
        """Return the conditions of the measurement; claims about the first accepted runs count as limits."""
        standard = self.standard
        more = max(0, len(standard.baselines) - len(self.spec.by_baseline))
        return replace(
            usual,
            gates=usual.gates + more,
            standard=standard,
            rule=self.rule,
            keep=self.records,
        )

    def unmeasured(self) -> Result:
        """Return the result of a gate that had nothing to be judged by and was not measured."""
        facts = {**self.server.facts, "name": self.variant.describe(), "simulated": self.server.simulated}
        return Result(verdicts=self._unjudged(), server=facts, simulated=self.server.simulated)

    def finished(self, result: Result, evidence: Evidence) -> Result:
        """Return the result with what stored runs say about it, and record it where that was asked for."""
        facts = self._facts(evidence)
        notes: tuple[str, ...] = ()
        if isinstance(self.basis, Found):
            verdicts = of_other_work(result.verdicts, self.basis, evidence.flags)
            result = replace(result, verdicts=tuple(verdicts))
            if evidence.rounds:
                notes = beside(self.spec, self.basis, result, facts, self.known.constants)
        done = Recorded(refused=True, lines=())
        if self.records:
            try:
                done = self._record(result, evidence, facts)
            except ConfigError as error:
                unwritten = replace(unmeasured("ERROR", str(error)), gate=_RECORD)
                result = replace(result, verdicts=(*result.verdicts, unwritten))
        if isinstance(self.basis, Problem) and done.refused:
            result = replace(result, verdicts=(*result.verdicts, *self._unjudged()))
        return replace(result, notes=(*notes, *done.lines, *result.notes))

    # ---------------------------------------------------------------------- parts
    def _unjudged(self) -> tuple[Verdict, ...]:
        assert isinstance(self.basis, Problem)
        return unjudged(self.spec, self.basis, lookup.action(self.basis, self.keeping.missing))

    def _facts(self, evidence: Evidence) -> FrozenMap:
        """Return the facts of the run; GPUs as they were under load, where that was seen."""
        around = self.known.surroundings
        if evidence.gpus and len(evidence.gpus) == len(around.gpus):
            gpus = tuple(
                replace(
                    gpu,
                    temperature_c=now.temperature_c,
                    sm_clock_mhz=now.sm_clock_mhz,
                    throttled=now.throttled,
                )
                for gpu, now in zip(around.gpus, evidence.gpus, strict=True)
            )
            around = replace(around, gpus=gpus)
        server = {**self.server.facts, "simulated": self.server.simulated or None}
        found = {**server, "workload": self.work.workload, "speculator": self.work.speculator}
        return facts_of(found, serve_options(self.variant), around, hooked=self.hooked)

    def _record(self, result: Result, evidence: Evidence, facts: FrozenMap) -> Recorded:
        """Record the run; raises ConfigError where the file cannot be used or written."""
        store, identity = self.keeping.store, self.identity
        assert store is not None
        assert identity is not None
        now = self.keeping.now()
        run = Record(
            run=f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:6]}",
            recorded_at=now.strftime(TIME_FORMAT),
            rounds=evidence.rounds,
            figures=evidence.figures,
            temperature_c=evidence.temperature_c,
            thermal=evidence.thermal,
            flags=evidence.flags,
            facts=facts,
            commit=self.keeping.commit,
            batch=self.keeping.batch,
        )
        return record(store, identity, run, self._state(result, evidence))

    def _state(self, result: Result, evidence: Evidence) -> RunState:
        by_word = {verdict.outcome: verdict for verdict in result.verdicts}
        error, failure = by_word.get("ERROR"), by_word.get("FAIL")
        stuck = evidence.stuck_mhz
        unfit = self.known.unfit or (
            None if stuck is None else f"a GPU stays at {stuck:.0f} MHz under full load"
        )
        return RunState(
            rounds=evidence.rounds,
            steady=evidence.steady,
            simulated=result.simulated,
            broken=None if error is None else error.reason.partition("\n")[0] or error.gate,
            failed=None if failure is None else failure.gate,
            rise_c=evidence.rise_c,
            throttled=evidence.throttled,
            unfit=unfit,
        )
