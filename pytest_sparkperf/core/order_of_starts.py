"""Orders tests so that servers start as seldom as possible, without tearing scopes apart.

Theory of operation. A start of a large model takes minutes, so tests that need the same servers should be
neighbours. Only tests of one scope (a module, a class) change places among themselves: the fixtures of that
scope are then set up once, as written. Tests that need no server keep their places. Within a scope the order
is stable: tests with the same needs keep theirs, and of two orders with equally many starts the one nearer to
the written one is taken. Scopes are looked at together: one that can end with the server which the next scope
needs first saves a start.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, permutations

from pytest_sparkperf.core.gate import GateSpec

Needs = frozenset[Hashable]
# Servers that are up, the one used last at the end.
Up = tuple[Hashable, ...]

NO_SERVER: Needs = frozenset()
# All orders of so many different needs are tried (120); above that each next need is the cheapest one.
_EXACT = 5


@dataclass(frozen=True, slots=True)
class _Plan:
    """The order of one scope: starts it takes, how many pairs of needs changed places, what is up then."""

    starts: int
    swaps: int
    up: Up
    order: tuple[Needs, ...]


def server_needs(spec: GateSpec | None) -> Needs:
    """Return the servers of a gate, as far as its mark tells: one, or the two of a comparison.

    The two of a comparison run with the target's options for residents, so that they are other servers than
    the same variants alone.
    """
    if spec is None:
        return NO_SERVER
    if spec.against is None:
        return frozenset({("alone", spec.server_words)})
    return frozenset({("beside", spec.server_words), ("beside", spec.reference().server_words)})


def fewest_starts(scopes: Sequence[Hashable], needs: Sequence[Needs], *, max_resident: int) -> list[int]:
    """Return the order to run tests in: indices into ``needs``, which is parallel to ``scopes``.

    Tests move within their scope only. ``max_resident`` servers can be up at once.
    """
    runs = _runs(scopes, needs)
    plans: dict[Up, list[_Plan]] = {(): []}
    for run in runs:
        plans = _extend(plans, _different(needs, run), max_resident)
    chosen = min(plans.values(), key=_price)
    order = list(range(len(needs)))
    for run, step in zip(runs, chosen, strict=True):
        ranked = sorted(run, key=lambda index: step.order.index(needs[index]))
        for place, index in zip(run, ranked, strict=True):
            order[place] = index
    return order


def count_starts(needs: Sequence[Needs], *, max_resident: int) -> int:
    """Return how many starts an order takes where the server used longest ago makes room."""
    return _cost((), tuple(needs), max_resident).starts


def _runs(scopes: Sequence[Hashable], needs: Sequence[Needs]) -> list[list[int]]:
    """Return the places of tests that may change places, those without a server left out."""
    runs = (list(places) for _, places in groupby(range(len(scopes)), key=lambda at: scopes[at]))
    with_server = ([at for at in places if needs[at]] for places in runs)
    return [places for places in with_server if places]


def _different(needs: Sequence[Needs], run: Sequence[int]) -> tuple[Needs, ...]:
    return tuple(dict.fromkeys(needs[index] for index in run))


def _extend(
    plans: dict[Up, list[_Plan]], groups: tuple[Needs, ...], max_resident: int
) -> dict[Up, list[_Plan]]:
    """Continue the best plan per set of servers left up by one scope."""
    best: dict[Up, list[_Plan]] = {}
    for up, steps in plans.items():
        for order in _orders(up, groups, max_resident):
            plan = replace(_cost(up, order, max_resident), swaps=_swaps(order, groups))
            known = best.get(plan.up)
            if known is None or _price([*steps, plan]) < _price(known):
                best[plan.up] = [*steps, plan]
    return best


def _price(steps: Sequence[_Plan]) -> tuple[int, int]:
    return sum(step.starts for step in steps), sum(step.swaps for step in steps)


def _swaps(order: tuple[Needs, ...], written: tuple[Needs, ...]) -> int:
    places = [written.index(needs) for needs in order]
    return sum(first > second for first, second in combinations(places, 2))


def _orders(up: Up, groups: tuple[Needs, ...], max_resident: int) -> Iterator[tuple[Needs, ...]]:
    if len(groups) <= _EXACT:
        yield from permutations(groups)
        return
    order: list[Needs] = []
    left = list(groups)
    while left:
        cheapest = min(left, key=lambda need: len(need.difference(up)))
        left.remove(cheapest)
        order.append(cheapest)
        up = _cost(up, (cheapest,), max_resident).up
    yield tuple(order)


def _cost(up: Up, order: tuple[Needs, ...], max_resident: int) -> _Plan:
    starts = 0
    for needs in order:
        missing = [one for one in sorted(needs, key=repr) if one not in up]
        starts += len(missing)
        kept = [one for one in up if one not in needs]
        used = [*(one for one in up if one in needs), *missing]
        room = max(0, max_resident - len(used))
        up = (*(kept[-room:] if room else ()), *used)
    return _Plan(starts, 0, up, order)
