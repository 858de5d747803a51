"""Fits the simulated machines to the published measurements: prints the numbers that profiles.py holds.

Run ``python benchmarks/fit_profiles.py [PROFILE ...]``; scipy is needed. Each profile starts from what it
has now, so a second run confirms it. A point counts by how far it may be missed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scipy.optimize import least_squares

from pytest_sparkperf.sim.profile import Profile
from pytest_sparkperf.sim.profiles import PROFILES
from pytest_sparkperf.sim.published import POINTS, Point, simulated
from pytest_sparkperf.sim.rehearsal import Figures, Shape

_REPORT = ("jit_s", "acceptance_spread", "token_s", "draft_routing_overlap")
# What is free in each fit; everything else is stated by a maker or by the publication.
FREE: Mapping[str, tuple[str, ...]] = {
    "gb10-fast": (
        "step_overhead_s",
        "draft_overhead_s",
        "speculation_overhead_s",
        "padded_token_s",
        "kv_read_efficiency",
        "draft_kv_share",
        "prefill_token_s",
        "prefill_pair_s",
    ),
    "gb10-paired": (
        "batch_overhead_s",
        "draft_overhead_s",
        "step_overhead_s",
        "token_s",
        "speculation_overhead_s",
        "draft_routing_overlap",
        "expert_bytes",
    ),
    "gb10-fp8": ("token_s",),  # its drafts share no routing: that is at its bound
    "gb10-marlin": ("token_s", "draft_overhead_s"),
    "gb10-recipe": ("step_overhead_s", "token_s"),
    # A step's overhead is the joint fit's: three loads of four streams cannot tell it from the tokens' cost.
    "gb10-report": (*_REPORT, "prefill_token_s"),
    "thor-report": (*_REPORT, "step_overhead_s", "prefill_token_s"),
    "rtx-pro-6000-report": (*_REPORT, "step_overhead_s"),
}
_SHARES = frozenset({"draft_routing_overlap", "kv_read_efficiency"})


def fit(start: Profile, free: Sequence[str], points: Sequence[Point]) -> tuple[Profile, list[float]]:
    """Return the fitted profile, and by how much it misses each point (relative)."""
    values = [getattr(start, name) for name in free]

    def scaled(factors: Sequence[float]) -> Profile:
        changes = {name: float(value * by) for name, value, by in zip(free, values, factors, strict=True)}
        return replace(start, **changes)  # type: ignore[arg-type]  # every free field is a float

    def residuals(factors: Sequence[float]) -> list[float]:
        missed = misses(scaled(factors), points)
        shares = [math.log1p(miss) / point.spread for miss, point in zip(missed, points, strict=True)]
        # Squared once more: of two ways to miss, the one whose worst point misses less is the better.
        return [math.copysign(share * share, share) for share in shares]

    most = [0.999 / value if name in _SHARES else 20.0 for name, value in zip(free, values, strict=True)]
    bounds = ([0.0] * len(free), most)
    found = least_squares(residuals, [1.0] * len(free), bounds=bounds, diff_step=0.02, max_nfev=25)
    profile = scaled(found.x)
    return profile, misses(profile, points)


def misses(profile: Profile, points: Sequence[Point]) -> list[float]:
    """Return by how much a profile misses each point (relative)."""
    figures: dict[Shape, Figures] = {}
    for point in points:
        if point.shape not in figures:
            figures[point.shape] = simulated(profile, point.shape)
    return [getattr(figures[point.shape], point.metric) / point.value - 1 for point in points]


def main(names: Sequence[str]) -> None:
    """Fit the profiles named, or all, and print what came out."""
    for name in names or FREE:
        points = [point for point in POINTS if point.profile == name]
        profile, missed = fit(PROFILES[name], FREE[name], points)
        print(name, ", ".join(f"{field}={getattr(profile, field):.3g}" for field in FREE[name]))
        for point, miss in zip(points, missed, strict=True):
            shape = point.shape
            load = f"{shape.prompt_tokens}/{shape.output_tokens} x{shape.streams} k={shape.k}"
            print(f"  {load}: {point.metric} {point.value:g} missed by {miss:+.1%} (may {point.spread:.0%})")


if __name__ == "__main__":
    main(sys.argv[1:])
