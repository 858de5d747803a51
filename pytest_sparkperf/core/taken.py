"""The figures of one pass, as log speeds per cell; a missing figure stays missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_sparkperf.core.claim import Claim, log_speed
from pytest_sparkperf.core.order import SUBJECT, Arm, Step

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Taken:
    """One pass as it was measured: figures per step, and of all requests of the server under test."""

    index: int
    values: Mapping[Step, Figures]
    requests: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The servers that were measured."""
        return ("A", "B") if (0, "A") in self.values else (SUBJECT,)

    @property
    def cells(self) -> range:
        """The cells of the pass."""
        return range(len(self.values) // len(self.arms))

    def speeds(self, metric: str, arm: Arm | None) -> list[float] | None:
        """Return the log speed per cell of one server (no arm: B over A); None where one is missing."""
        if arm is None:
            after, before = self.speeds(metric, "B"), self.speeds(metric, "A")
            if after is None or before is None:
                return None
            return [b - a for a, b in zip(before, after, strict=True)]
        return _complete([log_speed(metric, self.values[cell, arm].get(metric)) for cell in self.cells])

    def all_speeds(self, metric: str) -> list[float] | None:
        """Return the log speed of every step; None where one is missing."""
        return _complete(
            [log_speed(metric, figures.get(metric)) for _, figures in sorted(self.values.items())]
        )

    def each_request(self, metric: str) -> list[float | None]:
        """Return a metric of every request of the server under test; one per cell where no more is known."""
        if metric in self.requests:
            return list(self.requests[metric])
        return [self.values[cell, SUBJECT].get(metric) for cell in self.cells]

    def missing(self, claim: Claim) -> list[str]:
        """Return where the figures of a claim are missing, in words."""
        if claim.quantile is not None:
            values = self.each_request(claim.metric)
            lacking = sum(log_speed(claim.metric, value) is None for value in values)
            return [f"{lacking} of {len(values)} requests"] if lacking or not values else []
        arms = self.arms if claim.kind == "paired" else (SUBJECT,)
        named = len(self.arms) > 1
        return [
            f"cell {cell}, server {arm}" if named else f"cell {cell}"
            for cell in self.cells
            for arm in arms
            if log_speed(claim.metric, self.values[cell, arm].get(claim.metric)) is None
        ]


def _complete(found: Sequence[float | None]) -> list[float] | None:
    known = [value for value in found if value is not None]
    return known if len(known) == len(found) else None
