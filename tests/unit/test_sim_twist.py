from __future__ import annotations

from typing import Any

from pytest_sparkperf.sim.faults import Faults
from pytest_sparkperf.sim.twist import STRAIGHT, Twist, Twister


def twists(faults: Faults, count: int = 1, *, launch: str = "one", **asked: Any) -> list[Twist]:
    twister = Twister(launch)
    facts: dict[str, Any] = {"cached_tokens": 0, "ignore_eos": False} | asked
    return [twister.twist(faults, (1, 2), **facts) for _ in range(count)]


def test_without_a_fault_answers_are_straight() -> None:
    (twist,) = twists(Faults())

    assert (twist.fork_at, twist.tie_at, twist.repeat_at, twist.end_at) == (None,) * 4
    assert (twist.altered_argument, twist.leak) == (STRAIGHT.altered_argument, STRAIGHT.leak)


def test_each_second_answer_to_a_prompt_is_unsteady() -> None:
    assert [twist.fork_at for twist in twists(Faults(unsteady_after=4), 4)] == [None, 4, None, 4]


def test_the_start_of_the_process_names_its_own_text() -> None:
    (one,), (two,) = (twists(Faults(launch_after=3), launch=launch) for launch in ("one", "two"))

    assert (one.fork_at, two.fork_at) == (3, 3)
    assert one.fork_label != two.fork_label


def test_a_tie_is_kept_or_flipped() -> None:
    (kept,), (flipped,) = twists(Faults(tie_at=6)), twists(Faults(tie_flip_at=6))

    assert (kept.tie_at, kept.fork_at) == (6, None)
    assert (flipped.tie_at, flipped.fork_at) == (6, 6)


def test_only_a_warm_prompt_breaks() -> None:
    faults = Faults(warm_breaks=True)

    assert not twists(faults)[0].altered_argument
    assert twists(faults, cached_tokens=16)[0].altered_argument


def test_the_model_ends_early_only_where_that_is_ignored() -> None:
    faults = Faults(past_end_after=9)

    assert twists(faults)[0].end_at is None
    assert twists(faults, ignore_eos=True)[0].end_at == 9
