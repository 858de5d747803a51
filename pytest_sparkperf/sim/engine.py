"""The engine loop without a clock: which streams a step serves, how long it takes and which tokens come out.

Time is handed in: :meth:`Engine.begin` plans a step at a given second and says when it ends,
:meth:`Engine.complete` then gives out its tokens. Queueing, the gain of speculative decoding and the decay
with depth are not written down anywhere; they follow from what one step costs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

from pytest_sparkperf.sim.conditions import STEADY, Conditions, ConditionSettings
from pytest_sparkperf.sim.cost import PrefillChunk, step_cost_s
from pytest_sparkperf.sim.counters import Counters
from pytest_sparkperf.sim.prefix_cache import PrefixCache
from pytest_sparkperf.sim.profile import Profile
from pytest_sparkperf.sim.statslog import State
from pytest_sparkperf.sim.words import uniform

# How long a stalled engine gives nothing out (fault stall_after).
STALL_S = 2.0


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the simulated engine was started; ``slowdown`` 2.0 makes every step take twice as long."""

    draft_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool
    slowdown: float = 1.0
    jit_s: float = 0.0
    seed: int = 0
    conditions: ConditionSettings = STEADY


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What the engine must know of a request; ``digest`` fixes the luck of its drafts."""

    request_id: str
    prompt_ids: Sequence[int]
    digest: bytes
    output_tokens: int
    finish_reason: str = "length"
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Emission:
    """Tokens ``first`` to ``first + tokens`` of one request's answer, given out by one step."""

    request_id: str
    first: int
    tokens: int
    done: bool
    cached_tokens: int = 0  # prompt tokens that the prefix cache held


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the engine: which requests it decodes, which prompts it computes, what it compiled."""

    start_s: float
    end_s: float
    decoding: tuple[str, ...]
    prefill: tuple[tuple[str, PrefillChunk], ...]
    compiled: tuple[str, ...]


@dataclass(slots=True)
class _Stream:
    request: EngineRequest
    arrival_s: float
    cached: int = 0
    computed: int = 0  # prompt tokens whose KV exists
    emitted: int = 0
    first_token_s: float | None = None
    stalled: bool = False
    ease: float | None = None

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def prefilled(self) -> bool:
        return self.computed >= self.prompt_tokens

    @property
    def reserved_tokens(self) -> int:
        return self.prompt_tokens + self.request.output_tokens


@dataclass(slots=True)
class _Queues:
    waiting: deque[_Stream] = field(default_factory=deque)
    running: dict[str, _Stream] = field(default_factory=dict)


class Engine:
    """Serves all running streams one step at a time, first come first served beyond ``max_num_seqs``.

    A request is admitted only when the KV cache has room for its whole prompt and output, so that none is
    ever preempted.
    """

    def __init__(self, profile: Profile, settings: EngineSettings) -> None:
        self.counters = Counters(settings.draft_tokens)
        self.pace = 1.0  # a fault makes every step take so many times as long
        self.stall_after: int | None = None  # a fault stalls the engine after so many tokens of a request
        self._profile = profile
        self._settings = settings
        self._acceptance = profile.accepted_given(settings.draft_tokens)
        self._queues = _Queues()
        self._kv_tokens = profile.kv_tokens(settings.draft_tokens)
        self._cache = PrefixCache(self._kv_tokens if settings.prefix_caching else 0)
        # Kept once their first token is out: a prompt of 100,000 tokens takes this process a while.
        self._computed: list[tuple[Sequence[int], str]] = []
        self._compiled: set[str] = set()
        self._conditions = Conditions(settings.conditions)

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._queues.running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a place in the batch."""
        return len(self._queues.waiting)

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the KV cache that running requests hold, 0 to 1."""
        return self._reserved_tokens() / self._kv_tokens

    def state(self) -> State:
        """Return the gauges of the moment."""
        hits, queries = self.counters.prefix_hits, self.counters.prefix_queries
        return State(self.running, self.waiting, self.kv_usage_ratio, hits / queries if queries else 0.0)

    def known_tokens(self, prompt_ids: Sequence[int], cache_salt: str) -> int:
        """Return how many tokens of a prompt the prefix cache holds now."""
        self._keep_computed()
        return self._cache.cached_tokens(prompt_ids, cache_salt) if self._settings.prefix_caching else 0

    def reset_counters(self) -> None:
        """Count from nothing again, as a server that was started anew."""
        self.counters = Counters(self._settings.draft_tokens)

    def submit(self, request: EngineRequest, now_s: float) -> None:
        """Queue a request that arrived at ``now_s``."""
        self._queues.waiting.append(_Stream(request, now_s))

    def abort(self, request_id: str) -> bool:
        """Drop a request wherever it is; return whether it was still there."""
        found = self._queues.running.pop(request_id, None) is not None
        for stream in list(self._queues.waiting):
            if stream.request.request_id == request_id:
                self._queues.waiting.remove(stream)
                found = True
        if found:
            self.counters.finished["abort"] += 1
        return found

    def begin(self, at_s: float) -> Step | None:
        """Plan the step that starts at ``at_s``; None when there is nothing to do.

        An idle engine starts when the first request arrives, if that is later than ``at_s``.
        """
        self._keep_computed()
        if not self._queues.running and self._queues.waiting:
            at_s = max(at_s, self._queues.waiting[0].arrival_s)
        self._admit(at_s)
        streams = self._queues.running.values()
        decoding = [stream for stream in streams if stream.prefilled]
        prefill = self._plan_prefill(streams, len(decoding))
        if not decoding and not prefill:
            return None
        contexts = [stream.prompt_tokens + stream.emitted for stream in decoding]
        cost_s = step_cost_s(
            self._profile, contexts, self._settings.draft_tokens, [chunk for _, chunk in prefill]
        )
        compiled = self._compile(len(decoding), bool(prefill))
        cost_s = self._conditions.scaled_s(cost_s * self._settings.slowdown * self.pace, at_s)
        cost_s += len(compiled) * self._settings.jit_s + self._stall_s(decoding)
        names = tuple(stream.request.request_id for stream in decoding)
        return Step(at_s, at_s + cost_s, names, tuple(prefill), compiled)

    def complete(self, step: Step) -> tuple[Emission, ...]:
        """End a step: return the tokens of every request that it served and that has not been aborted."""
        running = self._queues.running
        emissions = [
            self._decode(running[request_id], step) for request_id in step.decoding if request_id in running
        ]
        for request_id, chunk in step.prefill:
            stream = running.get(request_id)
            if stream is not None:
                stream.computed += chunk.tokens
                if stream.prefilled:
                    self._computed.append((stream.request.prompt_ids, stream.request.cache_salt))
                    emissions.append(self._emit(stream, 1, step.end_s))
        return tuple(emissions)

    def _admit(self, at_s: float) -> None:
        waiting, running = self._queues.waiting, self._queues.running
        while waiting and len(running) < self._settings.max_num_seqs and waiting[0].arrival_s <= at_s:
            stream = waiting[0]
            held = self._reserved_tokens()
            if running and held + stream.reserved_tokens > self._kv_tokens:
                return
            waiting.popleft()
            running[stream.request.request_id] = stream
            self._look_up_prefix(stream)

    def _keep_computed(self) -> None:
        for prompt_ids, cache_salt in self._computed:
            self._cache.store(prompt_ids, cache_salt)
        self._computed.clear()

    def _look_up_prefix(self, stream: _Stream) -> None:
        if not self._settings.prefix_caching:
            return
        request = stream.request
        stream.cached = stream.computed = self._cache.cached_tokens(request.prompt_ids, request.cache_salt)
        self.counters.prefix_queries += stream.prompt_tokens
        self.counters.prefix_hits += stream.cached

    def _plan_prefill(self, streams: Iterable[_Stream], decoding: int) -> list[tuple[str, PrefillChunk]]:
        budget = self._settings.max_num_batched_tokens - decoding * (1 + self._settings.draft_tokens)
        chunks = []
        for stream in streams:
            tokens = min(stream.prompt_tokens - stream.computed, budget)
            if tokens > 0:
                chunks.append((stream.request.request_id, PrefillChunk(stream.computed, tokens)))
                budget -= tokens
        return chunks

    def _compile(self, decoding: int, prefill: bool) -> tuple[str, ...]:
        """Return the kernels this step is the first to need; batches up to a power of two share one."""
        needed = [f"fused_decode_kernel_b{1 << (decoding - 1).bit_length()}"] if decoding else []
        if decoding and self._settings.draft_tokens:
            needed.append("rejection_greedy_sample_kernel")
        if prefill:
            needed.append("chunked_prefill_kernel")
        fresh = tuple(kernel for kernel in needed if kernel not in self._compiled)
        self._compiled.update(fresh)
        return fresh

    def _stall_s(self, decoding: Iterable[_Stream]) -> float:
        """Return how long the fault holds this step up: once for each request that has come so far."""
        if self.stall_after is None:
            return 0.0
        due = [stream for stream in decoding if stream.emitted >= self.stall_after and not stream.stalled]
        for stream in due:
            stream.stalled = True
        return STALL_S if due else 0.0

    def _decode(self, stream: _Stream, step: Step) -> Emission:
        accepted = 0
        if self._settings.draft_tokens:
            accepted = self._accepted(stream)
            self.counters.count_draft(accepted)
        return self._emit(stream, 1 + accepted, step.end_s)

    def _accepted(self, stream: _Stream) -> int:
        """Return how many drafts in a row are accepted, by draws that belong to the positions in the answer.

        The draw of a position is the same at every k: drafting deeper cannot change the luck before it.
        """
        table, ease = self._acceptance, self._ease(stream)
        for depth in range(self._settings.draft_tokens):
            likely = table[min(depth, len(table) - 1)] ** ease
            label = f"accept {self._settings.seed}"
            if uniform(stream.request.digest, label, stream.emitted + depth) >= likely:
                return depth
        return self._settings.draft_tokens

    def _ease(self, stream: _Stream) -> float:
        """Return the exponent of this text's acceptance: below 1 where it is easy to draft."""
        if not self._profile.acceptance_spread:
            return 1.0
        if stream.ease is None:
            drawn = NormalDist().inv_cdf(max(1e-9, uniform(stream.request.digest, "ease", 0)))
            stream.ease = math.exp(self._profile.acceptance_spread * drawn)
        return stream.ease

    def _emit(self, stream: _Stream, tokens: int, at_s: float) -> Emission:
        request = stream.request
        tokens = min(tokens, request.output_tokens - stream.emitted)
        first = stream.emitted
        stream.emitted += tokens
        self.counters.generation_tokens += tokens
        if stream.first_token_s is None:
            stream.first_token_s = at_s
            self.counters.prompt_tokens += stream.prompt_tokens
            self.counters.ttft.observe(at_s - stream.arrival_s)
        done = stream.emitted >= request.output_tokens
        if done:
            del self._queues.running[request.request_id]
            self._count_finished(stream, at_s)
        return Emission(request.request_id, first, tokens, done, stream.cached)

    def _count_finished(self, stream: _Stream, at_s: float) -> None:
        self.counters.finished[stream.request.finish_reason] += 1
        self.counters.e2e_latency.observe(at_s - stream.arrival_s)
        if stream.emitted > 1 and stream.first_token_s is not None:
            self.counters.tpot.observe((at_s - stream.first_token_s) / (stream.emitted - 1))

    def _reserved_tokens(self) -> int:
        return sum(stream.reserved_tokens for stream in self._queues.running.values())
