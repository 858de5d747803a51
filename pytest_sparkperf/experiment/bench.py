"""What a run measures with: its servers, one event loop, and the way from a gate to a Result."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts, clock_of, stream_request
from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.adapters.store import DEFAULT_FOLDER, FolderStore
from pytest_sparkperf.core.design import judges_acceptance
from pytest_sparkperf.core.equivalence_report import EquivalenceReport
from pytest_sparkperf.core.errors import ConfigError, ServerError, SparkPerfError
from pytest_sparkperf.core.expect import expectation_faults
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.load import Endpoint, Load
from pytest_sparkperf.core.order import SUBJECT, Arm
from pytest_sparkperf.core.residents import fit_together
from pytest_sparkperf.core.result import RequestResult, Result
from pytest_sparkperf.core.run_verdicts import queue_note
from pytest_sparkperf.core.server_memory import ServerMemory, fact_verdicts
from pytest_sparkperf.core.shared import check_shared
from pytest_sparkperf.core.targets import MAX_RESIDENT
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.experiment.blocks import RestartedServers, run_blocks
from pytest_sparkperf.experiment.known import Knowledge, Known, is_here
from pytest_sparkperf.experiment.long_run import LongRun
from pytest_sparkperf.experiment.loop import LoopThread
from pytest_sparkperf.experiment.measure import REFERENCE, Conditions, Measurement
from pytest_sparkperf.experiment.outputs import BROKEN, ask_again, ask_servers, with_report, without_report
from pytest_sparkperf.experiment.passes import Unwatched, Watch
from pytest_sparkperf.experiment.pool import ServerPool
from pytest_sparkperf.experiment.prompts import load_digest, prompts_for
from pytest_sparkperf.experiment.side import Side
from pytest_sparkperf.experiment.starter import Starter
from pytest_sparkperf.experiment.stored import Keeping, StoredGate, first_rule

# A server that idled this long is warmed again before it is handed out.
_COLD_AFTER_S = 600.0
_WARM_TOKENS = 32

T = TypeVar("T")


class Bench:
    """Starts servers when gates need them, measures on them, and stops them all in the end."""

    def __init__(
        self,
        *,
        expected: Sequence[Variant],
        starter: Starter,
        root: Path,
        keeping: Keeping | None = None,
        max_resident: int = MAX_RESIDENT,
        stop_idle: bool = True,
    ) -> None:
        self._starter = starter
        self._max_resident = max_resident
        self._pool = ServerPool(self._start, expected, room=starter.room(max_resident), stop_idle=stop_idle)
        self._loop = LoopThread()
        self._knowledge = Knowledge(root)
        self._keeping = keeping or Keeping(FolderStore(root / DEFAULT_FOLDER))
        self._used_s: dict[Variant, float] = {}

    def server(self, variant: Variant) -> Server:
        """Return the running server of a variant; raises ServerError when it cannot be had."""
        return self._pool.get(variant)

    def warm(self, variant: Variant) -> None:
        """Send the default load, shortened, until the server is steady; nothing where it served a while ago.

        For clients handed to a test, whose own requests nobody knows in advance. Raises MeasurementError for
        a server that fails.
        """
        if time.monotonic() - self._used_s.get(variant, -_COLD_AFTER_S) < _COLD_AFTER_S:
            return
        spec = GateSpec(load=Load(output_tokens=_WARM_TOKENS))
        self._drive({SUBJECT: variant}, spec, Conditions(1), Measurement.warm_up)

    def measure(
        self, variants: Mapping[Arm, Variant], spec: GateSpec, *, gates: int, test: str = ""
    ) -> Result:
        """Measure a gate on its server (B), or on it and the one it is compared with (A) in turn.

        ``test`` names its stored runs. Raises ServerError or ConfigError before anything is measured.
        """
        if spec.by_baseline:
            return self._by_stored_runs(variants[SUBJECT], spec, gates, test)
        if not fit_together(variants, max_resident=self._max_resident):
            return self._by_restart(variants, spec, gates)
        server = self._pool.get_all(variants)[SUBJECT]
        conditions = _conditions(self._known(variants[SUBJECT], server, spec), gates)
        with self._watch(server) as watch:
            conditions = replace(conditions, watch=watch)
            if spec.load.is_run:
                result = self._on_sides(
                    variants, spec, lambda sides: LongRun(sides[SUBJECT], spec, conditions).run()
                )
            else:
                result = self._drive(variants, spec, conditions, Measurement.run)
        notes = (*_queue_notes(server, spec.load), *watch.notes())
        result = _with_facts(result, spec, self._starter.memory_of(server), notes)
        return self._with_outputs(result, variants, spec) if spec.same_output else result

    def _with_outputs(self, result: Result, variants: Mapping[Arm, Variant], spec: GateSpec) -> Result:
        """Compare the outputs of B with those of A, whatever their speeds were."""
        # Where the servers did different work there are rounds, and their outputs say in what they differ.
        if not result.rounds and any(verdict.outcome == "ERROR" for verdict in result.verdicts):
            return without_report(result, BROKEN)
        try:
            return with_report(result, self._compare_outputs(variants, spec))
        except SparkPerfError as error:
            return without_report(result, str(error))

    def _compare_outputs(self, variants: Mapping[Arm, Variant], spec: GateSpec) -> EquivalenceReport:
        servers, reference = self._pool.get_all(variants), variants[REFERENCE]
        asked = self._loop.run(ask_servers(servers[REFERENCE], servers[SUBJECT], spec))
        if asked.in_doubt and reference.launch != "attach":
            # The pool starts it, in this thread and beside no other server: an interrupt leaves none behind,
            # and there is memory for it. What was stopped starts again when a later gate needs it.
            self._pool.stop_all()
            self._loop.run(ask_again(asked, self._pool.get(reference)))
        return asked.report((reference.describe(), variants[SUBJECT].describe()))

    def _by_stored_runs(self, variant: Variant, spec: GateSpec, gates: int, test: str) -> Result:
        """Judge a gate by what was stored of its machine, or record it as one more run."""
        server = self._pool.get(variant)
        check_shared(spec, variant)
        _check_queue(server, spec.load)
        known, prompts = self._known(variant, server, spec), prompts_for(server, spec.load)
        rule = self._loop.run(first_rule(server, spec.load, prompts[0]))
        gate = StoredGate.open(self._keeping, test, spec, (variant, server, known), prompts, rule)
        if not gate.measures:
            return _with_facts(gate.unmeasured(), spec, self._starter.memory_of(server))
        conditions = gate.conditions(_conditions(known, gates))
        with self._watch(server) as watch:
            conditions = replace(conditions, watch=watch)
            result, evidence = self._drive({SUBJECT: variant}, spec, conditions, Measurement.run_for_keeps)
        notes = (*_queue_notes(server, spec.load), *watch.notes())
        result = _with_facts(result, spec, self._starter.memory_of(server), notes)
        return gate.finished(result, evidence)

    def _known(self, variant: Variant, server: Server, spec: GateSpec) -> Known:
        return self._knowledge.of(variant, server, load_digest(spec.load))

    def _by_restart(self, variants: Mapping[Arm, Variant], spec: GateSpec, gates: int) -> Result:
        """Compare servers that cannot be up at once, in blocks A B B A."""
        if spec.same_output:
            raise ConfigError(
                "same_output needs both servers at once, and they do not fit beside each other here: pin "
                "their KV memory (resident: in the target), attach to two that run, or drop same_output"
            )
        subject = self._pool.get(variants[SUBJECT])
        conditions = _conditions(self._known(variants[SUBJECT], subject, spec), gates)
        prompts = prompts_for(subject, spec.load)
        self._pool.stop_all()
        held: dict[str, ServerMemory | None] = {}

        def look(server: Server) -> None:
            held[server.url] = self._starter.memory_of(server)

        servers = RestartedServers(
            self._starter.start, variants, prompts, _check_queue, look, self._knowledge.ceiling
        )
        with self._watch(subject) as watch:
            watched = replace(conditions, watch=watch)
            [result] = self._loop.run(run_blocks([spec], servers, watched, conditions.thermometer))
        notes = (*_queue_notes(subject, spec.load), *watch.notes())
        return _with_facts(result, spec, held.get(str(result.server.get("url"))), notes)

    def _watch(self, server: Server) -> AbstractContextManager[Watch]:
        """Return who looks at the server's machine, where it is a real one and this one."""
        return nullcontext(Unwatched()) if server.simulated or not is_here(server) else self._starter.watch()

    def _drive(
        self,
        variants: Mapping[Arm, Variant],
        spec: GateSpec,
        conditions: Conditions,
        what: Callable[[Measurement], Coroutine[Any, Any, T]],
    ) -> T:
        return self._on_sides(variants, spec, lambda sides: what(Measurement(sides, spec, conditions)))

    def _on_sides(
        self,
        variants: Mapping[Arm, Variant],
        spec: GateSpec,
        what: Callable[[dict[Arm, Side]], Coroutine[Any, Any, T]],
    ) -> T:
        """Do something with clients that are open on the servers of a gate, which fit its load."""
        servers = self._pool.get_all(variants)
        for arm, server in servers.items():
            check_shared(spec, variants[arm])
            _check_queue(server, spec.load)
        _check_acceptance(variants[SUBJECT], spec)
        _check_expectations(servers[SUBJECT], spec)
        # Both sides send the same texts: they are fitted with the tokenizer of the server under test.
        prompts = prompts_for(servers[SUBJECT], spec.load)

        async def run() -> T:
            async with AsyncExitStack() as stack:
                sides: dict[Arm, Side] = {}
                for arm, server in servers.items():
                    client = open_async_client(server.url, api_key=server.api_key)
                    await stack.enter_async_context(client)
                    sides[arm] = Side(
                        variants[arm],
                        server,
                        client,
                        spec.load,
                        prompts,
                        self._knowledge.ceiling(variants[arm], server),
                    )
                return await what(sides)

        done = self._loop.run(run())
        self._used_s |= dict.fromkeys(variants.values(), time.monotonic())
        return done

    def request(self, variant: Variant, body: Mapping[str, Any]) -> RequestResult:
        """Send one streamed request with a body of the user's own and return what came of it."""
        server = self._pool.get(variant)
        endpoint: Endpoint = "completions" if "prompt" in body else "chat"
        request = GenerationRequest(endpoint, {"model": server.model, "temperature": 0, **body}, k=server.k)
        clock = clock_of(server.time_scale)
        timeouts = Timeouts.of_silence(server.silence_timeout_s).scaled(server.time_scale)

        async def run() -> RequestResult:
            async with open_async_client(server.url, api_key=server.api_key) as client:
                return await stream_request(client, request, timeouts=timeouts, clock=clock)

        return self._loop.run(run())

    def done(self, variant: Variant) -> None:
        """Note that an expected gate has run; what no later one needs is stopped."""
        self._pool.done(variant)

    def close(self, *, keep: bool = False) -> None:
        """Stop the loop and all servers; with ``keep`` leave up what is, and say how to use and end it."""
        try:
            if keep:
                for variant, server in self._pool.keep_all():
                    self._starter.outside.progress(_kept(variant, server))
            self._pool.stop_all()
        finally:
            self._loop.close()
            self._starter.close()

    def _start(self, variant: Variant) -> Server:
        self._used_s.pop(variant, None)
        return self._starter.start(variant)


def _with_facts(
    result: Result, spec: GateSpec, memory: ServerMemory | None, notes: Sequence[str] = ()
) -> Result:
    """Add what is read once of the idle server, the limits on it, and what its machine was like."""
    result = replace(result, notes=(*result.notes, *notes))
    if memory is not None:
        result = replace(result, memory_gib=memory.total_gib, notes=(*result.notes, str(memory)))
    return replace(result, verdicts=(*result.verdicts, *fact_verdicts(spec, result)))


def _kept(variant: Variant, server: Server) -> str:
    known_k = "" if server.k is None else f"{server.k}="
    return (
        f"server {variant.describe()!r} stays up at {server.url}: attach to it with --sparkperf-url "
        f"{known_k}{server.url}, end it with `sparkperf stop`; the next run that starts a server ends it too"
    )


def _conditions(known: Known, gates: int) -> Conditions:
    return Conditions(gates, known.thermal, known.constants, known.glance)


def _check_expectations(server: Server, spec: GateSpec) -> None:
    faults = list(expectation_faults(spec.expect, server.facts))
    if faults:
        raise ServerError(f"{server.url} is not the server that expect= describes: {'; '.join(faults)}")


def _check_acceptance(variant: Variant, spec: GateSpec) -> None:
    if variant.traffic == "shared" and judges_acceptance(spec):
        raise ConfigError(
            f"acceptance cannot be judged on target {variant.target!r}, which says traffic: shared: its "
            f"counters hold the drafts of others too; keep others off it and say traffic: exclusive"
        )


def _queue_notes(server: Server, load: Load) -> tuple[str, ...]:
    most = server.facts.get("max_num_seqs")
    if not isinstance(most, int) or load.concurrency <= most or not load.capped:
        return ()
    return (queue_note(load.concurrency, most),)


def _check_queue(server: Server, load: Load) -> None:
    most = server.facts.get("max_num_seqs")
    if isinstance(most, int) and load.capped and load.concurrency > most and not load.queueing:
        raise ConfigError(
            f"concurrency={load.concurrency} is more than the {most} requests that {server.url} runs at once "
            f"(max-num-seqs), so it would measure the queue; lower it, start the server with --max-num-seqs "
            f"{load.concurrency}, or say queueing=True if the queue is what you want to measure"
        )
