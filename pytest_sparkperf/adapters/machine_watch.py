"""Looks at the machine every few seconds while a server is measured, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from pytest_sparkperf.core.gpu import GpuState
from pytest_sparkperf.core.memory import MemInfo
from pytest_sparkperf.core.preflight import GpuApp
from pytest_sparkperf.core.watch import Sample, pass_fault, watch_notes

# nvidia-smi takes some 20 ms of one CPU, so that watching costs about a hundredth of it.
PERIOD_S = 2.0
_JOIN_S = 30.0


class MachineWatch:
    """Samples between ``with`` and its end; ``begin`` marks a pass, ``fault`` judges what came since.

    ``gpus``, ``apps`` and ``memory`` read the machine; ``own`` are processes of ours, None where they cannot
    be told. Who uses a GPU when the watch begins may go on: that was judged before.
    """

    def __init__(
        self,
        *,
        gpus: Callable[[], tuple[GpuState, ...]],
        apps: Callable[[], tuple[GpuApp, ...]],
        memory: Callable[[], MemInfo | None],
        own: Callable[[], Collection[int] | None],
        period_s: float = PERIOD_S,
    ) -> None:
        self._gpus = gpus
        self._apps = apps
        self._memory = memory
        self._own = own
        self._period_s = period_s
        self._samples: list[Sample] = []
        self._pass_start = 0
        self._measured_from: int | None = None
        self._known: frozenset[int] = frozenset()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="sparkperf-watch", daemon=True)

    def begin(self) -> None:
        """Begin a pass."""
        self._pass_start = len(self._samples)
        if self._measured_from is None:
            self._measured_from = self._pass_start

    def fault(self) -> str | None:
        """Say what was wrong with the machine since the pass began; None where nothing shows."""
        own = self._own()
        known = None if own is None else self._known | set(own)
        everything = list(self._samples)
        return pass_fault(everything, everything[self._pass_start :], known)

    def notes(self) -> tuple[str, ...]:
        """Say what the machine was like since the first pass began."""
        return watch_notes(self._samples[self._measured_from or 0 :])

    def look(self) -> None:
        """Take a sample now."""
        self._samples.append(Sample(self._gpus(), self._apps(), self._memory()))

    def _sample(self) -> None:
        while not self._end.wait(self._period_s):
            self.look()

    def __enter__(self) -> Self:
        self._known = frozenset(app.pid for app in self._apps())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(_JOIN_S)
