from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from pytest_sparkperf.sim.conditions import ConditionSettings
from pytest_sparkperf.sim.engine import STALL_S, Engine, EngineRequest, EngineSettings, Step
from pytest_sparkperf.sim.profiles import DEFAULT_PROFILE, PROFILES
from pytest_sparkperf.sim.words import prompt_digest

GB10 = PROFILES[DEFAULT_PROFILE]
SETTINGS = EngineSettings(draft_tokens=0, max_num_seqs=32, max_num_batched_tokens=8192, prefix_caching=True)
MTP = replace(SETTINGS, draft_tokens=3)


def request(name: str, *, prompt: int = 100, output: int = 64, salt: str = "") -> EngineRequest:
    ids = [len(name), *name.encode(), *range(prompt - 1 - len(name))]
    return EngineRequest(name, ids, prompt_digest(ids), output, cache_salt=salt)


class Run:
    """An engine run dry: when each request's tokens came, in virtual seconds."""

    def __init__(self, settings: EngineSettings, *requests: EngineRequest, at_s: float = 0.0) -> None:
        self.engine = Engine(GB10, settings)
        self.steps: list[Step] = []
        self.times: dict[str, list[float]] = defaultdict(list)
        self.tokens: dict[str, list[int]] = defaultdict(list)
        for each in requests:
            self.engine.submit(each, at_s)
        self.drain(at_s)

    def drain(self, at_s: float) -> float:
        while (step := self.engine.begin(at_s)) is not None:
            self.steps.append(step)
            for emission in self.engine.complete(step):
                self.times[emission.request_id].append(step.end_s)
                self.tokens[emission.request_id].append(emission.tokens)
            at_s = step.end_s
        return at_s

    def rate(self, name: str) -> float:
        times, tokens = self.times[name], self.tokens[name]
        return (sum(tokens) - tokens[0]) / (times[-1] - times[0])


def crowd(count: int, *, output: int = 64) -> list[EngineRequest]:
    return [request(f"stream-{number}", output=output) for number in range(count)]


def test_every_token_is_given_out_once() -> None:
    for settings in (SETTINGS, MTP):
        run = Run(settings, *crowd(5, output=50))

        assert {sum(tokens) for tokens in run.tokens.values()} == {50}
        assert run.engine.counters.generation_tokens == 250


def test_without_drafts_each_step_gives_one_token_per_stream() -> None:
    run = Run(SETTINGS, *crowd(3))

    assert {tokens for each in run.tokens.values() for tokens in each} == {1}
    assert len(run.steps) == 64


def test_with_drafts_a_step_gives_one_to_four_tokens() -> None:
    run = Run(MTP, request("a", output=400))

    assert run.tokens["a"][0] == 1
    assert set(run.tokens["a"][1:-1]) == {1, 2, 3, 4}


def test_steps_follow_each_other_without_a_gap() -> None:
    run = Run(MTP, *crowd(2))

    assert [step.start_s for step in run.steps[1:]] == [step.end_s for step in run.steps[:-1]]


def test_acceptance_follows_the_profile() -> None:
    run = Run(MTP, *crowd(32, output=400))
    counters = run.engine.counters
    by_position = [accepted / counters.drafts for accepted in counters.accepted_per_position]

    # 0.917, then times 0.855, then times 0.852; 3,800 drafts give a standard error of 0.008 at most.
    assert by_position == pytest.approx([0.917, 0.784, 0.668], abs=0.03)


def test_the_same_prompt_has_the_same_luck_whatever_runs_beside_it() -> None:
    alone = Run(MTP, request("a"))
    crowded = Run(MTP, request("a"), *crowd(7))

    assert alone.tokens["a"] == crowded.tokens["a"]


def test_another_seed_has_other_luck() -> None:
    one, two = (Run(replace(MTP, seed=seed), request("a")) for seed in (1, 2))

    assert one.tokens["a"] != two.tokens["a"]


def test_drafts_pay_and_four_pay_less_than_three() -> None:
    rates = {
        k: sum(
            Run(replace(SETTINGS, draft_tokens=k), each).rate(each.request_id)
            for each in crowd(8, output=256)
        )
        for k in (0, 3, 4)
    }

    assert rates[0] < rates[4] < rates[3]
    assert 1.4 < rates[3] / rates[0] < 1.7


def test_eight_streams_are_faster_together_and_slower_each() -> None:
    alone = Run(SETTINGS, *crowd(1)).rate("stream-0")
    together = Run(SETTINGS, *crowd(8)).rate("stream-0")

    assert 0.3 * alone < together < 0.7 * alone
    assert 8 * together > 2 * alone


def test_deeper_context_is_slower() -> None:
    shallow, deep = (Run(SETTINGS, request("a", prompt=prompt)).rate("a") for prompt in (1_000, 100_000))

    assert deep < 0.8 * shallow


def test_slowdown_scales_every_step() -> None:
    normal, slow = (Run(replace(SETTINGS, slowdown=factor), request("a")) for factor in (1.0, 2.0))

    assert slow.times["a"] == pytest.approx([2 * at_s for at_s in normal.times["a"]])


def test_noise_is_drawn_from_the_seed() -> None:
    noisy = replace(SETTINGS, conditions=ConditionSettings(noise=0.01))
    first, again = Run(noisy, request("a")), Run(noisy, request("a"))
    other = Run(replace(SETTINGS, conditions=ConditionSettings(noise=0.01, seed=1)), request("a"))

    assert first.times == again.times
    assert first.times["a"][-1] != other.times["a"][-1]
    # 64 steps with a standard deviation of 1 %: 0.13 % in their sum.
    assert first.times["a"][-1] == pytest.approx(Run(SETTINGS, request("a")).times["a"][-1], rel=0.01)


def test_a_long_prompt_is_computed_in_chunks_beside_running_streams() -> None:
    run = Run(SETTINGS, request("short", output=40), request("long", prompt=20_000, output=2))
    chunks = [chunk.tokens for step in run.steps for name, chunk in step.prefill if name == "long"]

    assert sum(chunks) == 20_000
    assert max(chunks) <= 8192
    # The short one decodes on while the long one is computed.
    assert run.times["short"][1] < run.times["long"][0]


def test_requests_beyond_max_num_seqs_wait_in_order() -> None:
    run = Run(replace(SETTINGS, max_num_seqs=2), *crowd(4))
    first = {name: times[0] for name, times in run.times.items()}

    assert first["stream-0"] == first["stream-1"]
    assert first["stream-2"] > run.times["stream-0"][-1]
    assert first["stream-2"] == first["stream-3"]


def test_running_and_waiting_are_counted_while_they_last() -> None:
    engine = Engine(GB10, replace(SETTINGS, max_num_seqs=2))
    for each in crowd(3):
        engine.submit(each, 0.0)
    engine.begin(0.0)

    assert (engine.running, engine.waiting) == (2, 1)
    assert engine.kv_usage_ratio == pytest.approx(2 * 164 / GB10.kv_cache_tokens)


def test_a_request_that_finds_no_room_in_the_kv_cache_waits() -> None:
    engine = Engine(replace(GB10, kv_cache_tokens=300), SETTINGS)
    for each in crowd(2):
        engine.submit(each, 0.0)
    engine.begin(0.0)

    assert (engine.running, engine.waiting) == (1, 1)


def test_an_idle_engine_starts_when_a_request_arrives() -> None:
    run = Run(SETTINGS, request("a"), at_s=5.0)

    assert run.steps[0].start_s == 5.0


def test_a_request_does_not_join_a_step_before_it_arrived() -> None:
    engine = Engine(GB10, SETTINGS)
    engine.submit(request("early"), 0.0)
    engine.submit(request("late"), 10.0)
    step = engine.begin(1.0)

    assert step is not None
    assert [name for name, _ in step.prefill] == ["early"]


def test_a_warm_prompt_is_faster_and_counted_as_hit() -> None:
    run = Run(SETTINGS, request("same", prompt=2000))
    cold_s = run.times["same"][0]
    start_s = run.drain(run.steps[-1].end_s) if run.steps else 0.0
    run.engine.submit(request("same", prompt=2000), start_s)
    run.times.clear()
    run.drain(start_s)

    assert run.times["same"][0] - start_s < 0.5 * cold_s
    assert run.engine.counters.prefix_queries == 4000
    assert run.engine.counters.prefix_hits == 1984


def test_a_salt_keeps_a_known_prompt_cold() -> None:
    run = Run(SETTINGS, request("same", salt="1"))
    run.engine.submit(request("same", salt="2"), 100.0)
    run.drain(100.0)

    assert run.engine.counters.prefix_hits == 0


def test_without_prefix_caching_nothing_is_looked_up() -> None:
    run = Run(replace(SETTINGS, prefix_caching=False), request("same"))
    run.engine.submit(request("same"), 100.0)
    run.drain(100.0)

    assert (run.engine.counters.prefix_queries, run.engine.counters.prefix_hits) == (0, 0)


def test_the_first_use_of_a_shape_compiles_once() -> None:
    compiling = replace(SETTINGS, jit_s=0.5)
    run = Run(compiling, *crowd(3))
    cost_s = [step.end_s - step.start_s for step in run.steps]

    assert [step.compiled for step in run.steps[:2]] == [
        ("chunked_prefill_kernel",),
        ("fused_decode_kernel_b4",),
    ]
    assert {step.compiled for step in run.steps[2:]} == {()}
    assert cost_s[1] == pytest.approx(cost_s[2] + 0.5, rel=0.01)


def test_an_aborted_stream_frees_its_place_at_once() -> None:
    engine = Engine(GB10, replace(SETTINGS, max_num_seqs=1))
    for each in crowd(2):
        engine.submit(each, 0.0)
    step = engine.begin(0.0)
    assert step is not None

    assert engine.abort("stream-0")
    assert engine.complete(step) == ()
    following = engine.begin(step.end_s)
    assert following is not None
    assert [name for name, _ in following.prefill] == ["stream-1"]
    assert engine.counters.finished["abort"] == 1


def test_aborting_what_is_over_changes_nothing() -> None:
    run = Run(SETTINGS, request("a"))

    assert not run.engine.abort("a")
    assert run.engine.counters.finished == {"length": 1}


def test_an_engine_without_requests_has_no_step() -> None:
    assert Engine(GB10, SETTINGS).begin(0.0) is None


def test_a_prompts_known_tokens_can_be_asked_for() -> None:
    run = Run(SETTINGS, request("same", salt="1"))
    prompt = request("same").prompt_ids

    assert run.engine.known_tokens(prompt, "1") == 96
    assert run.engine.known_tokens(prompt, "2") == 0
    assert Run(replace(SETTINGS, prefix_caching=False)).engine.known_tokens(prompt, "1") == 0


def test_a_stall_holds_each_request_up_once() -> None:
    engine = Engine(GB10, SETTINGS)
    engine.stall_after = 5
    engine.submit(request("a", output=12), 0.0)
    ends = [0.0]
    while (step := engine.begin(ends[-1])) is not None:
        engine.complete(step)
        ends.append(step.end_s)
    gaps = [late - early for early, late in pairwise(ends)]

    assert [gap > STALL_S for gap in gaps] == [False] * 5 + [True] + [False] * 6


def test_counters_can_start_anew() -> None:
    run = Run(SETTINGS, request("a"))
    run.engine.reset_counters()

    assert run.engine.counters.generation_tokens == 0
