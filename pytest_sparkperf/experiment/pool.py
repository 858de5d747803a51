"""Servers of one run: each variant started when it is first needed, kept while needed, always stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.variant import Variant

RESIDENTS = 2


class ServerPool:
    """Keeps at most two started servers up; ``expected`` lists the variants of coming gates, in order.

    A server is stopped as soon as no expected gate needs it. When a third must start, the one that is needed
    last makes room and would have to start again. Attached servers take no room: they are not ours to stop.
    """

    def __init__(self, start: Callable[[Variant], Server], expected: Sequence[Variant] = ()) -> None:
        self._start = start
        self._expected = deque(expected)
        self._up: dict[Variant, Server] = {}

    def get(self, variant: Variant) -> Server:
        """Return the running server of a variant; raises ServerError when it cannot be had.

        A server that died since it was last used is stopped and started again.
        """
        return self._get(variant, keep=())

    def _get(self, variant: Variant, keep: Sequence[Variant]) -> Server:
        server = self._up.get(variant)
        if server is not None and not server.alive():
            self._stop(variant)
            server = None
        if server is None:
            self._make_room(variant, keep)
            server = self._up[variant] = self._start(variant)
        return server

    def get_all(self, variants: Mapping[Arm, Variant]) -> dict[Arm, Server]:
        """Return the servers of a comparison, all up at once; started strictly one after the other."""
        return {arm: self._get(variant, keep=tuple(variants.values())) for arm, variant in variants.items()}

    def done(self, variant: Variant) -> None:
        """Note that an expected gate has run, and stop what no later one needs."""
        if variant in self._expected:
            self._expected.remove(variant)
        for idle in [one for one in self._up if self._owned(one) and one not in self._expected]:
            self._stop(idle)

    def stop_all(self) -> None:
        """Stop every server; one that cannot be stopped does not keep the others up."""
        with ExitStack() as stack:
            for variant in list(self._up):
                stack.callback(self._up.pop(variant).stop)

    def _make_room(self, variant: Variant, keep: Sequence[Variant]) -> None:
        ours = [one for one in self._up if self._owned(one)]
        if self._owned(variant) and len(ours) >= RESIDENTS:
            self._stop(max((one for one in ours if one not in keep), key=self._next_need))

    def _next_need(self, variant: Variant) -> int:
        return self._expected.index(variant) if variant in self._expected else len(self._expected)

    def _owned(self, variant: Variant) -> bool:
        return variant.launch != "attach"

    def _stop(self, variant: Variant) -> None:
        self._up.pop(variant).stop()
