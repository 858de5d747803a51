from __future__ import annotations

import random
from collections.abc import Hashable
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.order_of_starts import NO_SERVER, Needs, count_starts, fewest_starts, server_needs


def needs(*words: str) -> list[Needs]:
    """One word per test: the letters are the servers it needs, - is none."""
    return [NO_SERVER if word == "-" else frozenset(word) for word in words]


def ordered(*words: str, scopes: str | None = None, max_resident: int = 1) -> list[str]:
    order = fewest_starts(scopes or "m" * len(words), needs(*words), max_resident=max_resident)
    assert sorted(order) == list(range(len(words)))
    return [words[index] for index in order]


def test_three_servers_over_twelve_shuffled_tests_start_three_times() -> None:
    words = ["a", "b", "c"] * 4
    random.Random(5).shuffle(words)

    assert count_starts(needs(*words), max_resident=1) > 3
    assert count_starts(needs(*ordered(*words)), max_resident=1) == 3


def test_tests_of_one_server_keep_their_order_and_servers_the_order_of_their_first_use() -> None:
    words = ["b", "a", "b", "a"]

    assert fewest_starts("mmmm", needs(*words), max_resident=1) == [0, 2, 1, 3]


def test_tests_without_a_server_keep_their_places() -> None:
    assert ordered("a", "-", "b", "-", "a") == ["a", "-", "a", "-", "b"]


def test_no_test_leaves_its_scope() -> None:
    order = fewest_starts("mmnn", needs("a", "b", "a", "b"), max_resident=1)

    assert sorted(order[:2]) == [0, 1]
    assert count_starts([needs("a", "b", "a", "b")[index] for index in order], max_resident=1) == 3


def test_a_scope_ends_with_the_server_that_the_next_one_needs() -> None:
    assert ordered("a", "b", "a", scopes="mmn") == ["b", "a", "a"]


def test_comparison_comes_beside_the_gates_of_its_servers() -> None:
    words = ordered("ab", "cd", "bc", max_resident=2)

    assert count_starts(needs(*words), max_resident=2) == 4
    assert count_starts(needs("ab", "cd", "bc"), max_resident=2) == 5


def test_an_order_that_cannot_be_bettered_stays_as_written() -> None:
    assert ordered("b", "b", "a", "c", "-") == ["b", "b", "a", "c", "-"]


def test_more_different_servers_than_can_be_tried_in_all_orders_are_still_gathered() -> None:
    words = [*"abcdefgh", *"hgfedcba"]

    assert count_starts(needs(*ordered(*words)), max_resident=1) == 8


@given(st.lists(st.sampled_from(["a", "b", "c", "ab", "bc", "-"]), max_size=6))
def test_no_other_order_of_one_scope_takes_fewer_starts(words: list[str]) -> None:
    planned = count_starts(needs(*ordered(*words, max_resident=2)), max_resident=2)

    assert planned == min(count_starts(order, max_resident=2) for order in permutations(needs(*words)))


def test_a_gate_needs_its_server_and_a_comparison_needs_two() -> None:
    alone = server_needs(parse_mark({"k": 3}))
    both = server_needs(parse_mark({"k": 3, "against": {"k": 0}, "min_speedup": 1.2}))

    assert len(alone) == 1
    assert len(both) == 2
    assert server_needs(parse_mark({"k": 3, "min_decode": 5})) == alone
    assert server_needs(None) == NO_SERVER
    kinds: set[Hashable] = {one[0] for one in alone | both if isinstance(one, tuple)}
    assert kinds == {"alone", "beside"}
