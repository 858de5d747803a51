from __future__ import annotations

import pytest

from pytest_sparkperf.core.taken import Taken
from pytest_sparkperf.core.warmup import WarmUp, warmed


def passed(index: int, **figures: float | None) -> Taken:
    return Taken(index, {(cell, "B"): figures for cell in range(4)})


@pytest.mark.parametrize(
    ("gains", "steady"),
    [
        ([0.0, 0.0, 0.0, 0.0], True),
        ([0.12, -0.04, -0.04, -0.04], False),
        ([0.03, 0.03, 0.03, 0.03], False),
        ([-0.04, -0.04, -0.04, -0.04], True),
        ([0.09, -0.03, -0.03, -0.03], True),
        ([-0.12, 0.0, 0.0, 0.0], False),
    ],
)
def test_when_two_passes_agree(gains: list[float], steady: bool) -> None:
    before = [4.0, 4.1, 4.2, 4.3]

    assert warmed(before, [value + gain for value, gain in zip(before, gains, strict=True)]) is steady


def test_the_first_pass_has_none_to_agree_with() -> None:
    assert WarmUp(1, ()).add(passed(0, decode_tok_s=100.0), still_compiling=False) == "go on"


def test_as_many_passes_as_make_eight_requests() -> None:
    warm_up = WarmUp(4, ())
    steps = [warm_up.add(passed(i, decode_tok_s=100.0), still_compiling=False) for i in range(4)]

    assert steps == ["go on", "go on", "go on", "warm"]


def test_a_pass_in_which_kernels_compiled_does_not_end_it() -> None:
    warm_up = WarmUp(2, ())
    steps = [
        warm_up.add(passed(i, decode_tok_s=100.0), still_compiling=compiling)
        for i, compiling in enumerate((True, True, False))
    ]

    assert steps == ["go on", "go on", "warm"]


@pytest.mark.parametrize(
    ("figures", "metric"),
    [
        ({"decode_tok_s": 100.0, "output_tok_s": 90.0}, "decode_tok_s"),
        ({"decode_tok_s": None, "output_tok_s": 90.0}, "output_tok_s"),
        ({"decode_tok_s": None, "ttft_ms": 90.0}, "ttft_ms"),
        ({"decode_tok_s": None}, "decode_tok_s"),
    ],
)
def test_what_is_watched(figures: dict[str, float | None], metric: str) -> None:
    warm_up = WarmUp(2, ("ttft_ms",))
    warm_up.add(passed(0, **figures), still_compiling=False)

    assert warm_up.metric == metric


def test_a_caller_may_name_what_is_watched() -> None:
    assert WarmUp(2, (), "output_tok_s").metric == "output_tok_s"


@pytest.mark.parametrize(("ttft_ms", "step"), [(50.0, "go on"), (85.0, "warm"), (130.0, "warm")])
def test_a_claimed_latency_must_have_stopped_falling(ttft_ms: float, step: str) -> None:
    """Times to the first token scatter by 11 to 14 %: only a large gain keeps the warm-up going."""
    warm_up = WarmUp(2, ("ttft_ms",))
    warm_up.add(passed(0, decode_tok_s=100.0, ttft_ms=100.0), still_compiling=False)

    assert warm_up.add(passed(1, decode_tok_s=100.0, ttft_ms=ttft_ms), still_compiling=False) == step


def test_a_noisy_metric_alone_is_asked_for_its_mean_only() -> None:
    warm_up = WarmUp(2, ("ttft_ms",))
    first = Taken(0, {(0, "B"): {"ttft_ms": 100.0}, (1, "B"): {"ttft_ms": 130.0}})
    second = Taken(1, {(0, "B"): {"ttft_ms": 125.0}, (1, "B"): {"ttft_ms": 95.0}})

    assert [warm_up.add(taken, still_compiling=False) for taken in (first, second)] == ["go on", "warm"]


def test_a_climb_that_never_ends_is_given_up() -> None:
    warm_up = WarmUp(2, ())
    steps = [warm_up.add(passed(i, decode_tok_s=100 * 1.05**i), still_compiling=False) for i in range(8)]

    assert steps == ["go on"] * 7 + ["given up"]
    assert warm_up.reason == (
        "never became steady in 8 warm-up passes: the last one changed decode_tok_s by +5.0 %, "
        "one of its requests by +5.0 %; look for other load on the machine, or ask for longer answers "
        "(output_tokens), which scatter less"
    )


def test_kernels_that_never_stop_compiling_are_named() -> None:
    warm_up = WarmUp(2, ())
    for index in range(8):
        warm_up.add(passed(index, decode_tok_s=100.0), still_compiling=True)

    assert warm_up.reason == (
        "never became steady in 8 warm-up passes: kernels were still compiling in the last one; "
        "send these shapes to the server first"
    )


def test_a_figure_that_is_missing_is_never_steady() -> None:
    warm_up = WarmUp(2, ())
    for index in range(8):
        figure = None if index % 2 else 100.0
        step = warm_up.add(passed(index, decode_tok_s=figure), still_compiling=False)

    assert step == "given up"
    assert warm_up.reason == (
        "never became steady in 8 warm-up passes: decode_tok_s was not measured in 4 of them; "
        "see the invalid requests"
    )


def test_both_servers_of_an_ab_must_be_warm() -> None:
    warm_up = WarmUp(2, ())
    rates = [(100.0, 60.0), (100.0, 90.0), (100.0, 91.0)]
    steps = [
        warm_up.add(
            Taken(i, {(0, "A"): {"decode_tok_s": a}, (0, "B"): {"decode_tok_s": b}}), still_compiling=False
        )
        for i, (a, b) in enumerate(rates)
    ]

    assert steps == ["go on", "go on", "warm"]
