"""Servers of one run: each variant started when it is first needed, kept while needed, always stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.memory import gib
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.residents import is_pinned, takes_room
from pytest_sparkperf.core.targets import MAX_RESIDENT
from pytest_sparkperf.core.variant import Variant


@dataclass(frozen=True, slots=True)
class Room:
    """How many started servers may be up at once, and the memory (bytes) that is available now and to spare.

    ``available`` returns None where the machine does not tell.
    """

    max_resident: int = MAX_RESIDENT
    available: Callable[[], int | None] = lambda: None
    reserve: int = 0


_TWO = Room()


class ServerPool:
    """Keeps started servers up while gates need them; ``expected`` are the variants of coming gates in order.

    A server is stopped as soon as no expected gate needs it, unless ``stop_idle`` says otherwise. Where
    another must start and there is no room, the one that is needed last is stopped and would have to start
    again. There is room for a further server
    when all have their KV memory pinned and the memory that the largest one took is there once more.
    Attached servers take no room: they are not ours to stop. A start that failed is not tried again: it would
    fail each later gate only after another ready timeout.
    """

    def __init__(
        self,
        start: Callable[[Variant], Server],
        expected: Sequence[Variant] = (),
        *,
        room: Room = _TWO,
        stop_idle: bool = True,
    ) -> None:
        self._start = start
        self._expected = deque(expected)
        self._room = room
        self._stop_idle = stop_idle
        self._up: dict[Variant, Server] = {}
        self._taken: dict[Variant, int] = {}
        self._failed: dict[Variant, ServerError] = {}

    def get(self, variant: Variant) -> Server:
        """Return the running server of a variant; raises ServerError when it cannot be had.

        A server that died since it was last used is stopped and started again.
        """
        return self._get(variant, keep=(variant,))

    def get_all(self, variants: Mapping[Arm, Variant]) -> dict[Arm, Server]:
        """Return the servers of a comparison, all up at once; started strictly one after the other."""
        keep = tuple(variants.values())
        return {arm: self._get(variant, keep) for arm, variant in variants.items()}

    def done(self, variant: Variant) -> None:
        """Note that an expected gate has run, and stop what no later one needs."""
        if variant in self._expected:
            self._expected.remove(variant)
        if not self._stop_idle:
            return
        for idle in [one for one in self._up if takes_room(one) and one not in self._expected]:
            self._stop(idle)

    def keep_all(self) -> list[tuple[Variant, Server]]:
        """Let every started server that is up outlive this run; return them."""
        kept = [(one, self._up[one]) for one in list(self._up) if takes_room(one) and self._up[one].alive()]
        for variant, server in kept:
            server.keep()
            del self._up[variant]
        return kept

    def stop_all(self) -> None:
        """Stop every server; one that cannot be stopped does not keep the others up."""
        with ExitStack() as stack:
            for variant in list(self._up):
                stack.callback(self._up.pop(variant).stop)

    def _get(self, variant: Variant, keep: Sequence[Variant]) -> Server:
        server = self._up.get(variant)
        if server is not None and not server.alive():
            self._stop(variant)
            server = None
        if server is None:
            if takes_room(variant):
                self._make_room(variant, keep)
            server = self._up[variant] = self._measured_start(variant)
        return server

    def _measured_start(self, variant: Variant) -> Server:
        if variant in self._failed:
            raise self._failed[variant]
        before = self._room.available()
        try:
            server = self._start(variant)
        except ServerError as error:
            if takes_room(variant):
                self._failed[variant] = error
            raise
        after = self._room.available()
        if takes_room(variant) and before is not None and after is not None:
            self._taken[variant] = max(0, before - after)
        return server

    def _make_room(self, variant: Variant, keep: Sequence[Variant]) -> None:
        while (others := [one for one in self._up if takes_room(one)]) and not self._fits(variant, others):
            idle = [one for one in others if one not in keep]
            if not idle:
                raise ServerError(self._too_much(variant, others))
            self._stop(max(idle, key=self._next_need))

    def _fits(self, variant: Variant, others: Sequence[Variant]) -> bool:
        if len(others) >= self._room.max_resident or not all(map(is_pinned, (variant, *others))):
            return False
        available, needed = self._room.available(), self._needs(variant)
        return available is None or available - self._room.reserve >= needed

    def _needs(self, variant: Variant) -> int:
        """Return what a server took before, else what the largest of this run took."""
        return self._taken.get(variant, max(self._taken.values(), default=0))

    def _too_much(self, variant: Variant, others: Sequence[Variant]) -> str:
        available, reserve = self._room.available(), gib(self._room.reserve)
        there = "" if available is None else f" ({gib(available)} available, {reserve} to spare)"
        beside = ", ".join(repr(one.describe()) for one in others)
        return (
            f"server {variant.describe()!r} needs about {gib(self._needs(variant))} beside {beside}, and "
            f"this machine has no room for it{there}; lower kv-cache-memory-bytes and gpu-memory-utilization "
            f"in `resident` of target {variant.target!r}"
        )

    def _next_need(self, variant: Variant) -> int:
        return self._expected.index(variant) if variant in self._expected else len(self._expected)

    def _stop(self, variant: Variant) -> None:
        self._up.pop(variant).stop()
