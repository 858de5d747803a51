"""Which number of draft tokens pays: the same load at k = 0, 1, 2, ..., as one table and one chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.kinds import is_whole
from pytest_sparkperf.core.metrics import METRICS
from pytest_sparkperf.core.reasons import figure
from pytest_sparkperf.core.report import SIMULATED_WORD
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.core.server_memory import kv_loss

GATE = "min_speedup"
_BAR = 40
_TITLES = (
    "k",
    "{metric}",
    "gain (interval)",
    "acceptance by position",
    "tokens per step",
    "KV cache given up",
)
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Point:
    """One k: ``result`` is that of its server, measured in turn with the one without drafts.

    ``gain`` is its speed over that of k=0 with the interval ``low`` to ``high``; None where it was not
    measured. Of k=0 itself it is 1.
    """

    k: int
    result: Result
    metric: str

    @property
    def speed(self) -> float | None:
        """The metric of the sweep: the decode rate of one stream, or the output rate of several, in tok/s."""
        found: float | None = getattr(self.result, self.metric)
        return found

    @property
    def verdict(self) -> Verdict | None:
        """Whether it is faster than k=0 (PASS) or slower (FAIL); None for k=0 itself."""
        return speedup_verdict(self.result) if self.k else None

    @property
    def gain(self) -> float | None:
        """Speed / speed of k=0."""
        return self.result.ratio if self.k else 1.0

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that a step of one stream yields, the bonus token included."""
        return self.result.acceptance_length if self.k else 1.0

    @property
    def kv_loss(self) -> float | None:
        """Share of the KV cache of k=0, in tokens, that the drafts cost."""
        return kv_loss(self.result) if self.k else 0.0


@dataclass(frozen=True, slots=True)
class Duel:
    """The peak against a neighbour: ``proven`` to be the faster of the two, by this verdict."""

    peak: int
    other: int
    proven: bool
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points by k, and the peak's comparisons with its neighbours."""

    points: tuple[Point, ...]
    duels: tuple[Duel, ...] = ()

    @property
    def peak(self) -> Point | None:
        """The fastest point; None where a gain could not be measured."""
        gains = [point.gain for point in self.points]
        if any(gain is None for gain in gains):
            return None
        return max(self.points, key=lambda point: point.gain or 0.0)

    @property
    def proven(self) -> bool:
        """Is the peak proven against all its neighbours?"""
        return self.peak is not None and bool(self.duels) and all(duel.proven for duel in self.duels)

    def __getitem__(self, k: int) -> Point:
        """Return the point of a k; raises KeyError for one that was not swept."""
        found = next((point for point in self.points if point.k == k), None)
        if found is None:
            raise KeyError(k)
        return found

    def table(self) -> str:
        """Return the table, one line per k."""
        titles = [title.format(metric=self.points[0].metric) for title in _TITLES]
        rows = [titles, *(_cells(point) for point in self.points)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        return "\n".join([*lines, self.conclusion()])

    def chart(self) -> str:
        """Return the speeds as bars of text, one line per k."""
        speeds = [point.speed or 0.0 for point in self.points]
        longest = max(speeds) or 1.0
        return "\n".join(
            f"k={point.k} {'#' * round(_BAR * speed / longest):<{_BAR}} {_speed(point)}"
            for point, speed in zip(self.points, speeds, strict=True)
        )

    def conclusion(self) -> str:
        """Say which k is the fastest, and against which others that is proven."""
        peak = self.peak
        if peak is None:
            lacking = [f"k={point.k} ({_why(point)})" for point in self.points if point.gain is None]
            return f"no fastest k, as a gain is missing: {'; '.join(lacking)}"
        against = [f"k={duel.other}" for duel in self.duels if duel.proven]
        open_ = [f"k={duel.other} ({duel.verdict.outcome})" for duel in self.duels if not duel.proven]
        parts = [f"proven against {' and '.join(against)}"] if against else []
        parts += [f"not proven against {' and '.join(open_)}"] if open_ else []
        return f"k={peak.k} is the fastest, {', '.join(parts) or 'and has no neighbours'}"

    def lines(self) -> list[str]:
        """Return table and chart as lines, each marked where its figures are a simulator's."""
        text = f"{self.table()}\n{self.chart()}".splitlines()
        simulated = any(point.result.simulated for point in self.points)
        return [f"{SIMULATED_WORD} {line}" for line in text] if simulated else text


def run_sweep(ks: Iterable[object], compare: Callable[[int, int], Result], metric: str) -> Sweep:
    """Sweep with ``compare(a, b)``, which measures the servers with k=a and k=b in turn and judges the gain.

    Each k is compared with k=0; then the fastest with its neighbours. Raises ConfigError for a wrong k.
    """
    order = swept(ks)
    results = [compare(0, k) for k in order[1:]]
    off = results[0].against
    assert off is not None, "a comparison has two arms"
    points = (
        Point(0, off, metric),
        *(Point(k, result, metric) for k, result in zip(order[1:], results, strict=True)),
    )
    peak = Sweep(points).peak
    if peak is None:
        return Sweep(points)
    duels = []
    for other in _neighbours(points, peak):
        duel = _known_duel(points, peak.k, other)
        if duel is None:
            verdict = speedup_verdict(compare(other, peak.k))
            assert verdict is not None, "a sweep's comparison judges the gain"
            duel = Duel(peak.k, other, verdict.outcome == "PASS", verdict)
        duels.append(duel)
    return Sweep(points, tuple(duels))


def swept(ks: Iterable[object]) -> tuple[int, ...]:
    """Return the k to sweep in order, 0 always among them; raises ConfigError for what is no k."""
    given = list(ks)
    wrong = [k for k in given if not (is_whole(k) and isinstance(k, int) and k >= 0)]
    if wrong or not any(given):
        seen = f"k={wrong[0]!r} is no number of draft tokens" if wrong else f"k={given!r} sweeps nothing"
        raise ConfigError(f"{seen}; give whole numbers, at least one above 0, such as k=range(5)")
    return tuple(sorted({0, *(k for k in given if isinstance(k, int))}))


def _neighbours(points: Sequence[Point], peak: Point) -> tuple[int, ...]:
    """Return the swept k beside the peak."""
    at = points.index(peak)
    return tuple(point.k for point in (*points[max(0, at - 1) : at], *points[at + 1 : at + 2]))


def _known_duel(points: Sequence[Point], peak: int, other: int) -> Duel | None:
    """Return the comparison of the peak with a neighbour where the sweep made it already: one with k=0."""
    if 0 not in (peak, other):
        return None
    verdict = next((point.verdict for point in points if point.k == max(peak, other)), None)
    if verdict is None:
        return None
    return Duel(peak, other, verdict.outcome == ("PASS" if peak else "FAIL"), verdict)


def speedup_verdict(result: Result) -> Verdict | None:
    """Return the verdict on being faster at all."""
    return next((one for one in result.verdicts if one.gate == GATE), None)


def _cells(point: Point) -> list[str]:
    return [
        str(point.k),
        figure(point.speed) if point.speed is not None else _UNKNOWN,
        _gain(point),
        " ".join(f"{share:.1%}" for share in point.result.acceptance_per_position or ()) or _UNKNOWN,
        _UNKNOWN if point.tokens_per_step is None else f"{point.tokens_per_step:.2f}",
        _UNKNOWN if point.kv_loss is None else f"{point.kv_loss:.1%}",
    ]


def _gain(point: Point) -> str:
    verdict = point.verdict
    if point.gain is None or verdict is None:
        return _UNKNOWN if point.k else "1"
    if verdict.low is None or verdict.high is None:
        return figure(point.gain)
    return f"{figure(point.gain)} ({figure(verdict.low)} to {figure(verdict.high)})"


def _why(point: Point) -> str:
    return "not judged" if point.verdict is None else f"{point.verdict.outcome}: {point.verdict.reason}"


def _speed(point: Point) -> str:
    return "not measured" if point.speed is None else f"{figure(point.speed)} {METRICS[point.metric].unit}"
