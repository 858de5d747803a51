"""When a server is warm: two successive passes agree, and no kernel was compiled in the last.

The watched metric is a rate where there is one. A pass agrees with the one before if no step moved by more
than 10 % and the mean gained no more than 2 %: what compiling kernels shows. Times to the first token scatter
by more than that for good, so only their mean is asked, and coarsely.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

from pytest_sparkperf.core import reasons
from pytest_sparkperf.core.taken import Taken

MAX_WARM_PASSES = 8
_JUMP, _MEAN = 0.10, 0.02
_NOISY_MEAN = 0.25
_STRICT = ("decode_tok_s", "tpot_ms", "output_tok_s", "decode_throughput_tok_s", "step_ms")


def warmed(
    before: Sequence[float], after: Sequence[float], *, jump: float = _JUMP, mean: float = _MEAN
) -> bool:
    """Has the start-up climb ended between two passes (log speed per step)?

    A slower pass ends it as well, unless one step fell by more than ``jump``.
    """
    gains = [now - then for then, now in zip(before, after, strict=True)]
    return max(map(abs, gains)) <= jump and math.fsum(gains) / len(gains) <= mean


class WarmUp:
    """The passes of one warm-up.

    ``claimed``: the metrics that will be judged. ``watch``: the metric to go by; by default the decode rate,
    the output rate where no decode rate is measured, or else a claimed one.
    """

    def __init__(self, min_passes: int, claimed: Collection[str], watch: str | None = None) -> None:
        self._min_passes = min_passes
        self._claimed = tuple(claimed)
        self._watch = watch
        self._passes: list[Taken] = []
        self._compiling = False

    def add(self, taken: Taken, *, still_compiling: bool) -> Literal["go on", "warm", "given up"]:
        """Take a pass and say what follows."""
        self._passes.append(taken)
        self._compiling = still_compiling
        if len(self._passes) >= self._min_passes and not still_compiling and self._steady():
            return "warm"
        return "given up" if len(self._passes) >= max(MAX_WARM_PASSES, self._min_passes) else "go on"

    @property
    def metric(self) -> str:
        """The metric that is watched."""
        if self._watch is not None:
            return self._watch
        candidates = ("decode_tok_s", "output_tok_s", *self._claimed)
        latest = self._passes[-1]
        return next((name for name in candidates if latest.all_speeds(name) is not None), candidates[0])

    @property
    def reason(self) -> str:
        """Why it was given up, in words."""
        speeds = [taken.all_speeds(self.metric) for taken in self._passes]
        missing = sum(found is None for found in speeds)
        seen = _change(*speeds[-2:]) if not missing else None
        return reasons.never_steady(
            len(speeds), self.metric, seen, compiling=self._compiling, missing=missing
        )

    def _steady(self) -> bool:
        watched = self.metric
        jump, mean = (_JUMP, _MEAN) if watched in _STRICT else (math.inf, _NOISY_MEAN)
        return self._agrees(watched, jump, mean) is True and all(
            self._agrees(metric, math.inf, _NOISY_MEAN) is not False for metric in self._claimed
        )

    def _agrees(self, metric: str, jump: float, mean: float) -> bool | None:
        """Do the last two passes agree in a metric? None where one of them lacks a figure."""
        if len(self._passes) < 2:
            return False
        before, after = (taken.all_speeds(metric) for taken in self._passes[-2:])
        if before is None or after is None:
            return None
        return warmed(before, after, jump=jump, mean=mean)


def _change(before: Sequence[float] | None, after: Sequence[float] | None) -> reasons.PassChange | None:
    """Return how a pass differs from the one before it; None where one lacks a figure."""
    if before is None or after is None:
        return None
    gains = [now - then for then, now in zip(before, after, strict=True)]
    return reasons.PassChange(math.expm1(math.fsum(gains) / len(gains)), math.expm1(max(gains, key=abs)))
