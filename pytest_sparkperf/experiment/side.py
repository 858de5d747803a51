"""One side of a measurement: sends cells to its server, and holds the server's own counters against them."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_sparkperf.adapters.client import (
    GenerationRequest,
    Recording,
    Timeouts,
    clock_of,
    record_request,
    stream_request,
)
from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.adapters.logtail import fence, read_since, read_tail
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.acceptance import (
    NOTHING_ACCEPTED,
    Acceptance,
    acceptance_between,
    acceptance_of_requests,
    pool,
    pool_intervals,
    why_no_acceptance,
)
from pytest_sparkperf.core.burst import burst_figures
from pytest_sparkperf.core.ceiling import Ceiling, impossible_rate
from pytest_sparkperf.core.context import is_numbered, numbered, went_cold
from pytest_sparkperf.core.exposition import Scrape, difference
from pytest_sparkperf.core.frozen import EMPTY
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.result import RequestResult, TpotRule
from pytest_sparkperf.core.secrets import redact
from pytest_sparkperf.core.serverlog import SpecDecodingInterval, jit_kernels, spec_decoding_intervals
from pytest_sparkperf.core.shared import COUNTED, counter_figures
from pytest_sparkperf.core.variant import Variant
from pytest_sparkperf.core.workload import request_body
from pytest_sparkperf.experiment.counters import scrape, scrape_after_answer, scrape_when_free, settled_scrape
from pytest_sparkperf.experiment.end_tokens import end_token_ids
from pytest_sparkperf.experiment.shots import Burst, fire
from pytest_sparkperf.experiment.warm_cache import WarmCache

GENERATED = "vllm:generation_tokens_total"
CACHE_HITS = "vllm:prefix_cache_hits_total"
LOGGED_ACCEPTANCE = (
    "acceptance is pooled from the SpecDecoding lines of the log, which do not begin and end with the "
    "rounds, since {url} shows no /metrics"
)
SHARED_ACCEPTANCE = "acceptance counts the requests of others too, as the target says traffic: shared"
_TAIL_LINES = 12
_HEALTH_TIMEOUT_S = 2.0


@dataclass(slots=True)
class PassRecord:
    """One pass on one server: its bursts by cell, and the counters around them.

    ``counters`` holds the figures that the server's counters tell of each cell, where they judge it.
    """

    index: int
    before: Scrape | None
    bursts: dict[int, Burst] = field(default_factory=dict)
    after: Scrape | None = None
    compiling: bool = False
    logged: tuple[SpecDecodingInterval, ...] = ()
    counters: dict[int, Mapping[str, float | None]] = field(default_factory=dict)
    slo: Mapping[str, float] = EMPTY

    def figures(self, cell: int, rule: TpotRule) -> Mapping[str, float | None]:
        """Return the figures of a cell: of its requests, or of the server's counters where those judge."""
        counted = self.counters.get(cell)
        if counted is not None:
            return counted
        return burst_figures(self.bursts[cell].requests, rule, self.slo)

    @property
    def output_tokens(self) -> int | None:
        """Tokens that our own requests generated; None where an attempt broke off and nobody knows."""
        bursts = self.bursts.values()
        if any(burst.spoiled or burst.fault for burst in bursts):
            return None
        return sum(request.output_tokens or 0 for burst in bursts for request in burst.requests)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the prefix cache, as far as the answers say so."""
        bursts = self.bursts.values()
        return sum(request.cached_tokens or 0 for burst in bursts for request in burst.requests)

    @property
    def counted(self) -> bool:
        """Did the server show its counters at all?"""
        return self.before is not None or self.after is not None

    @property
    def acceptance(self) -> Acceptance | None:
        """What was drafted and accepted in this pass, by the counters around it."""
        if self.before is None or self.after is None:
            return None
        return acceptance_between(self.before, self.after)


class Side:
    """Sends the passes of one measurement to one server."""

    def __init__(
        self,
        variant: Variant,
        server: Server,
        client: httpx.AsyncClient,
        load: Load,
        prompts: Sequence[Prompt],
        ceiling: Ceiling | None = None,
    ) -> None:
        self.server = server
        self.records: list[PassRecord] = []
        self.superseded: list[PassRecord] = []
        self.repeats: list[str] = []
        self.end_ids: frozenset[int] | None = None
        self._client = client
        self.slo = load.slo
        self._load = load.burst
        self.prompts = tuple(prompts)
        self._ceiling = ceiling
        self._name = variant.describe()
        self._wanted_k = variant.k
        self._exclusive = variant.traffic == "exclusive"
        self._timeouts = Timeouts.of_silence(server.silence_timeout_s).scaled(server.time_scale)
        self.clock = clock_of(server.time_scale)
        self._log_offset = 0
        self._salt = uuid.uuid4().hex
        self._cache = WarmCache(client, exclusive=self._exclusive) if load.prefix_cache == "warm" else None

    async def begin(self, index: int) -> None:
        """Start a pass; one that is begun again replaces its first try."""
        if self.records and self.records[-1].index == index:
            self.superseded.append(self.records.pop())
        if not self.records:
            self.end_ids = await end_token_ids(self._client, self.server.model)
        self._new_log_text()
        if self._cache is not None and not self._cache.hits:
            await self._cache.fill(self._sent_prompts(), self._load.depth, self._first_token)
        self.records.append(PassRecord(index, await self._scrape(), slo=self.slo))

    async def shoot(self, cell: int) -> Burst:
        """Send one cell: at concurrency 1 its prompt, else one burst of different prompts.

        On a server that others use it is sent when none of their requests waits, and counters judge it;
        raises BusyError where that does not come to pass.
        """
        record = self.records[-1]
        free = None
        if not self._exclusive:
            free = await scrape_when_free(self._client, self.server.url, self.server.silence_timeout_s)
        burst = await fire(
            self._client, lambda: self._requests(cell), self._timeouts, self.clock, self.possible
        )
        record.bursts[cell] = burst
        if not self._exclusive:
            after = await scrape_after_answer(self._client, free)
            if free is None or after is None:
                record.counters[cell] = {}
            else:
                record.counters[cell] = counter_figures(difference(free, after))
        return burst

    async def record(self, prompt: Prompt, when: Callable[[], Awaitable[None]] | None = None) -> Recording:
        """Send one request of a run, once ``when`` is over, and return what came, unparsed."""
        return await record_request(
            self._client, self._request(prompt), timeouts=self._timeouts, clock=self.clock, when=when
        )

    def keep(self, burst: Burst) -> None:
        """Keep what a run brought as the only burst of the pass that was begun for it."""
        self.records[-1].bursts[0] = burst

    async def end(self) -> None:
        """Finish a pass: read the counters again, and whether kernels were compiled meanwhile."""
        record = self.records[-1]
        record.after = await self._scrape()
        text = self._new_log_text()
        record.compiling = bool(jit_kernels(text))
        record.logged = tuple(spec_decoding_intervals(text))

    async def _scrape(self) -> Scrape | None:
        """Read the counters: at rest where the server is ours alone, since it never rests otherwise."""
        return await (settled_scrape if self._exclusive else scrape)(self._client)

    def fault(self) -> str | None:
        """Say what answers and counters of the server hold against the last pass; None where they agree.

        A server that never showed counters is judged by its answers alone; counters that were there and are
        gone are a fault.
        """
        record = self.records[-1]
        if self._load.prefix_cache == "cold" and record.cached_tokens:
            return _warm_cache(record.cached_tokens)
        if record.before is None or record.after is None:
            if self._counted:
                return _gone(self.server.url)
            return None if self._exclusive else _uncounted(self.server.url)
        delta = difference(record.before, record.after)
        if delta.restarted:
            return f"the server restarted during the measurement ({delta.reset})"
        own, counted = record.output_tokens, delta.total(GENERATED)
        if not self._exclusive:
            return None
        if own is not None and counted is not None and counted != own:
            return _miscount(own, int(counted))
        hits = delta.total(CACHE_HITS)
        if self._load.prefix_cache == "cold" and hits:
            return _warm_cache(hits)
        return None if hits is None else self._cold_cache(record, hits)

    def _cold_cache(self, record: PassRecord, hits: float) -> str | None:
        """Say that a cache which was filled for this load did not serve a pass."""
        if self._cache is None or any(burst.spoiled for burst in record.bursts.values()):
            return None
        sent = [request for burst in record.bursts.values() for request in burst.requests]
        return went_cold(hits, sum(self._cache.hits[request.prompt_name] for request in sent))

    def kept(self, indexes: Sequence[int]) -> list[PassRecord]:
        """Return the passes with these indexes."""
        return [record for record in self.records if record.index in set(indexes)]

    def everything(self) -> list[Burst]:
        """Return every burst that was sent, in warm-up and in passes that were sent again too."""
        return [burst for record in (*self.superseded, *self.records) for burst in record.bursts.values()]

    def acceptance(self, indexes: Sequence[int]) -> Acceptance | None:
        """Return the acceptance over passes, pooled; None with MTP off and where nothing tells it.

        It is counted around each pass. Of a server that shows no counters, or that others use, answers may
        tell it themselves; one without counters may log it, in intervals of its own.
        """
        kept = self.kept(indexes)
        # Counters of a server that others use count their drafts, too.
        told = None if self._counted and self._exclusive else _of_requests(kept)
        if told is not None:
            return told
        if not self._counted:
            return pool_intervals([interval for record in kept for interval in record.logged])
        return pool([record.acceptance for record in kept])

    def why_no_acceptance(self) -> str | None:
        """Say why the last pass has no acceptance by the counters; None where it has one."""
        record = self.records[-1]
        if record.before is None or record.after is None:
            return f"no acceptance: {self.server.url} shows no /metrics"
        return why_no_acceptance(record.before, record.after)

    def facts(self) -> Mapping[str, Any]:
        """Return the facts that a Result carries: the server's own, and the name that reports use."""
        return {**self.server.facts, "name": self._name, "simulated": self.server.simulated}

    def notes(self) -> tuple[str, ...]:
        """Say what could not be checked of the server, and why passes were sent again."""
        unchecked: list[str] = []
        if self._wanted_k is not None and self.server.k is None:
            unchecked.append(
                f"k={self._wanted_k} was asked for and could not be checked: {self.server.url} shows it "
                f"neither at /metrics nor at /server_info"
            )
        if self.records and self._exclusive and not self._counted:
            unchecked.append(
                f"tokens and prefix cache could not be checked against the server's counters: "
                f"{self.server.url} shows no /metrics"
            )
        if self.records and not self._exclusive:
            unchecked.append(COUNTED)
        unknown = self.server.facts.get("unknown_variables")
        if unknown:
            unchecked.append(f"the server does not know the environment variables {', '.join(unknown)}")
        repeats = [f"a pass was measured again: {reason}" for reason in dict.fromkeys(self.repeats)]
        return (*unchecked, *self._acceptance_notes(), *repeats)

    def _acceptance_notes(self) -> list[str]:
        """Say where acceptance is missing, or counts more than our own requests."""
        if not self.records or not self.server.k:
            return []
        drafted = self.acceptance([record.index for record in self.records])
        if drafted is not None and drafted.draft_tokens and not drafted.accepted_tokens:
            return [NOTHING_ACCEPTED.format(drafted=drafted.draft_tokens)]
        if not (self._counted and self._exclusive) and _of_requests(self.records) is not None:
            return []
        if not self._counted and any(record.logged for record in self.records):
            return [LOGGED_ACCEPTANCE.format(url=self.server.url)]
        missing = self.why_no_acceptance()
        if missing is not None:
            return [missing]
        return [] if self._exclusive else [SHARED_ACCEPTANCE]

    def log_tail(self) -> str:
        """Return the last lines of the log of a started server, set off from our own words."""
        path = self.server.log_path
        if path is None or self.server.process is None:
            return ""
        return redact(fence(read_tail(path, _TAIL_LINES)), self.server.process.secrets)

    async def pulse(self) -> str:
        """Say what the server's health page answers: it often does while the engine behind it hangs."""
        try:
            answer = await self._client.get("/health", timeout=_HEALTH_TIMEOUT_S)
        except httpx.HTTPError:
            return "/health does not answer"
        return f"/health answers {answer.status_code}"

    @property
    def _counted(self) -> bool:
        return any(record.counted for record in (*self.superseded, *self.records))

    def _new_log_text(self) -> str:
        path = self.server.log_path
        if path is None:
            return ""
        text, self._log_offset = read_since(path, self._log_offset)
        return text

    def possible(self, request: RequestResult) -> RequestResult:
        """Return a request; one that is faster than its memory is not valid."""
        fault = impossible_rate(request.decode_tok_s, self._ceiling)
        if fault is None:
            return request
        return replace(request, valid=False, reason=fault.reason, error=fault.text)

    def _requests(self, cell: int) -> list[GenerationRequest]:
        alone = self._load.concurrency == 1
        prompts = [self.prompts[cell]] if alone else self._sent_prompts()
        return [self._request(prompt) for prompt in prompts]

    def _sent_prompts(self) -> Sequence[Prompt]:
        """Return the prompts that a pass sends: all of them for one stream, one per request of a burst."""
        return self.prompts if self._load.concurrency == 1 else self.prompts[: self._load.concurrency]

    async def _first_token(self, prompt: Prompt) -> RequestResult:
        """Send a prompt for as short an answer as there is."""
        request = self._request(prompt)
        body = {**request.body, "max_tokens": 1}
        short = replace(request, body=body, expected_tokens=1 if request.expected_tokens else None)
        return await stream_request(self._client, short, timeouts=self._timeouts, clock=self.clock)

    def _request(self, prompt: Prompt) -> GenerationRequest:
        salt = uuid.uuid4().hex if self._load.prefix_cache == "cold" else self._salt
        if is_numbered(self._load):
            prompt = numbered(prompt, uuid.uuid4().int)
        body = request_body(self._load, prompt, model=self.server.model, salt=salt)
        return GenerationRequest(
            self._load.endpoint,
            body,
            prompt_name=prompt.name,
            expected_tokens=body["max_tokens"] if body.get("ignore_eos") else None,
            k=self.server.k,
        )


def _of_requests(records: Sequence[PassRecord]) -> Acceptance | None:
    """Return the acceptance that the answers of passes tell; None where one does not."""
    return acceptance_of_requests(
        [request for record in records for burst in record.bursts.values() for request in burst.requests]
    )


def _warm_cache(hits: float) -> str:
    return (
        f"{hits:.0f} prompt tokens came from the prefix cache, which was to be cold: "
        f"start the server with --no-enable-prefix-caching, or use a vLLM that knows cache_salt"
    )


def _uncounted(url: str) -> str:
    return (
        f"{url} shows no /metrics, and a server with traffic: shared is judged by its counters; let it show "
        f"them, or keep others off it and say traffic: exclusive"
    )


def _gone(url: str) -> str:
    return (
        f"{url}/metrics was there before and did not answer around this pass, so its tokens could not be "
        f"checked: see whether the server still runs, and what stands between it and this client"
    )


def _miscount(own: int, counted: int) -> str:
    if counted > own:
        return (
            f"the server generated {counted} tokens while this gate asked for {own}: other traffic was on "
            f"it; stop it, or say traffic: shared in the target"
        )
    return (
        f"the server counts {counted} generated tokens where usage says {own}: one of them is wrong; look "
        f"for something between client and server that rewrites usage, or several servers at one address"
    )
