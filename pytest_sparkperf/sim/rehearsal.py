"""Runs a load through a simulated engine without a clock, and says what its figures would be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import gcd
from statistics import fmean

from pytest_sparkperf.sim.engine import Engine, EngineRequest, EngineSettings
from pytest_sparkperf.sim.profile import Profile, conditional
from pytest_sparkperf.sim.words import prompt_digest

# Every simulated model knows these ids.
_TOKEN_IDS = 128_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A load: ``requests`` of the same lengths offered at once, of which ``streams`` run together.

    ``accepted`` are the shares of drafts accepted at each position, as vLLM reports them; without them the
    profile's own count. ``warm`` finds each prompt in the prefix cache; ``cold`` compiles as it goes.
    """

    prompt_tokens: int
    output_tokens: int
    streams: int = 1
    requests: int = 1
    k: int = 0
    accepted: tuple[float, ...] = ()
    warm: bool = False
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """What a load measured: means over its requests, and rates over the whole of it."""

    output_tok_s: float
    decode_tok_s: float
    decode_throughput_tok_s: float
    ttft_s: float
    tpot_ms: float
    duration_s: float


def rehearse(profile: Profile, shape: Shape, *, draws: int = 1) -> Figures:
    """Return the figures of a load on a profile, in the time of the simulated machine.

    How many drafts a text lets pass is drawn, so that a load of a few requests has its luck: means over
    ``draws`` sets of other prompts have less of it.
    """
    found = [_rehearse_once(profile, shape, draw) for draw in range(draws)]
    return Figures(**{each.name: fmean(getattr(one, each.name) for one in found) for each in fields(Figures)})


def offered_prompt(number: int, prompt_tokens: int, draw: int = 0) -> Sequence[int]:
    """Return the token ids of request ``number`` of a load; no two of them begin alike.

    Raises ValueError for a load so large that they would.
    """
    different = _TOKEN_IDS // gcd(prompt_tokens, _TOKEN_IDS)
    if number >= different:
        raise ValueError(
            f"there are {different} different prompts of {prompt_tokens} tokens, no {number + 1}."
        )
    start = number * prompt_tokens + draw
    return [place % _TOKEN_IDS for place in range(start, start + prompt_tokens)]


def _rehearse_once(profile: Profile, shape: Shape, draw: int) -> Figures:
    if shape.accepted:
        profile = replace(profile, acceptance=conditional(shape.accepted), acceptance_by_k=())
    settings = EngineSettings(
        draft_tokens=shape.k,
        max_num_seqs=shape.streams,
        max_num_batched_tokens=profile.max_num_batched_tokens,
        prefix_caching=shape.warm,
        jit_s=profile.jit_s if shape.cold else 0.0,
    )
    engine, start_s = Engine(profile, settings), 0.0
    if shape.warm:
        start_s = _drain(engine, _requests(shape, draw, "warm-up"), start_s)[1]
    times_s, end_s = _drain(engine, _requests(shape, draw, "request"), start_s)
    return _figures(shape, times_s, start_s, end_s)


def _requests(shape: Shape, draw: int, name: str) -> list[EngineRequest]:
    prompts = [offered_prompt(number, shape.prompt_tokens, draw) for number in range(shape.requests)]
    return [
        EngineRequest(f"{name} {number}", prompt_ids, prompt_digest(prompt_ids), shape.output_tokens)
        for number, prompt_ids in enumerate(prompts)
    ]


def _drain(
    engine: Engine, requests: Sequence[EngineRequest], at_s: float
) -> tuple[dict[str, list[float]], float]:
    """Serve requests until none is left; return when tokens of each came, and when the last step ended."""
    for request in requests:
        engine.submit(request, at_s)
    times_s: dict[str, list[float]] = defaultdict(list)
    while (step := engine.begin(at_s)) is not None:
        for emission in engine.complete(step):
            times_s[emission.request_id].append(step.end_s)
        at_s = step.end_s
    return times_s, at_s


def _figures(shape: Shape, times_s: dict[str, list[float]], start_s: float, end_s: float) -> Figures:
    streams = list(times_s.values())
    tokens = shape.output_tokens * shape.requests
    tpot_s = [(times[-1] - times[0]) / (shape.output_tokens - 1) for times in streams]
    first_s = min(times[0] for times in streams)
    return Figures(
        output_tok_s=tokens / (end_s - start_s),
        decode_tok_s=fmean(1 / each for each in tpot_s),
        decode_throughput_tok_s=tokens / (end_s - first_s),
        ttft_s=fmean(times[0] for times in streams) - start_s,
        tpot_ms=1000 * fmean(tpot_s),
        duration_s=end_s - start_s,
    )
