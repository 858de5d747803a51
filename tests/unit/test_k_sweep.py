"""A sweep of k: gains with intervals, the peak and whether it is proven, as table and chart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.k_sweep import Sweep, run_sweep, swept
from pytest_sparkperf.core.result import Outcome, Result, Verdict

RATES = {0: 67.0, 1: 83.0, 2: 93.0, 3: 106.0, 4: 97.0}


class Bench:
    """Compares by the rates above; ``undecided`` pairs end INCONCLUSIVE, ``broken`` ones in ERROR."""

    def __init__(self, rates: dict[int, float], *, undecided: tuple[int, int] = (-1, -1), broken: int = -1):
        self.rates = rates
        self.asked: list[tuple[int, int]] = []
        self._undecided = undecided
        self._broken = broken

    def __call__(self, a: int, b: int) -> Result:
        self.asked.append((a, b))
        if b == self._broken:
            verdict = Verdict("min_speedup", "ERROR", None, None, None, 1.0, None, "no usage")
            return replace(self._arm(b), decode_tok_s=None, against=self._arm(a), verdicts=(verdict,))
        ratio = self.rates[b] / self.rates[a]
        outcome: Outcome = "PASS" if ratio > 1 else "FAIL"
        outcome = "INCONCLUSIVE" if (a, b) == self._undecided else outcome
        verdict = Verdict("min_speedup", outcome, ratio, ratio - 0.02, ratio + 0.02, 1.0, None)
        return replace(self._arm(b), ratio=ratio, against=self._arm(a), verdicts=(verdict,))

    def _arm(self, k: int) -> Result:
        accepted = (0.9, 0.8, 0.7, 0.4)[:k]
        return Result(
            decode_tok_s=self.rates[k],
            acceptance_length=1 + sum(accepted) if k else None,
            acceptance_per_position=accepted or None,
            server={"k": k, "kv_cache_tokens": (1000 if k == 0 else 800,)},
        )


def sweep(bench: Bench, ks: object = (0, 1, 2, 3, 4)) -> Sweep:
    assert isinstance(ks, tuple)
    return run_sweep(ks, bench, "decode_tok_s")


def test_each_k_is_compared_with_0_and_the_peak_with_its_neighbours() -> None:
    bench = Bench(RATES)

    found = sweep(bench)

    assert bench.asked == [(0, 1), (0, 2), (0, 3), (0, 4), (2, 3), (4, 3)]
    assert found.peak is not None
    assert (found.peak.k, found.proven) == (3, True)
    assert found[3].gain == pytest.approx(106 / 67)
    assert found[0].gain == 1
    with pytest.raises(KeyError):
        found[7]


TABLE = """\
k  decode_tok_s         gain (interval)   acceptance by position  tokens per step  KV cache given up
0            67                       1                        -             1.00               0.0%
1            83  1.239 (1.219 to 1.259)                    90.0%             1.90              20.0%
2            93  1.388 (1.368 to 1.408)              90.0% 80.0%             2.70              20.0%
3           106  1.582 (1.562 to 1.602)        90.0% 80.0% 70.0%             3.40              20.0%
4            97  1.448 (1.428 to 1.468)  90.0% 80.0% 70.0% 40.0%             3.80              20.0%
k=3 is the fastest, proven against k=2 and k=4
k=0 #########################                67 tok/s
k=1 ###############################          83 tok/s
k=2 ###################################      93 tok/s
k=3 ######################################## 106 tok/s
k=4 #####################################    97 tok/s"""


def test_table_and_chart_say_it_all() -> None:
    assert sweep(Bench(RATES)).lines() == TABLE.splitlines()


def test_a_peak_that_is_not_proven_says_against_whom() -> None:
    found = sweep(Bench(RATES, undecided=(2, 3)))

    assert not found.proven
    assert (
        found.conclusion() == "k=3 is the fastest, proven against k=4, not proven against k=2 (INCONCLUSIVE)"
    )


def test_drafts_that_do_not_pay_leave_0_the_fastest() -> None:
    bench = Bench({0: 100.0, 1: 80.0, 2: 70.0})

    found = sweep(bench, (1, 2))

    assert bench.asked == [(0, 1), (0, 2)]
    assert found.conclusion() == "k=0 is the fastest, proven against k=1"
    assert found.proven


def test_a_k_that_could_not_be_measured_leaves_no_peak() -> None:
    found = sweep(Bench(RATES, broken=2), (1, 2))

    assert found.peak is None
    assert not found.proven
    assert found.conclusion() == "no fastest k, as a gain is missing: k=2 (ERROR: no usage)"
    assert found.table().splitlines()[3].split()[:3] == ["2", "-", "-"]
    assert found.chart().splitlines()[2].endswith(" not measured")


def test_a_simulators_lines_say_so() -> None:
    bench = Bench(RATES)
    simulated = run_sweep((1,), lambda a, b: replace(bench(a, b), simulated=True), "decode_tok_s")

    assert all(line.startswith("SIMULATED ") for line in simulated.lines())


@pytest.mark.parametrize(
    ("ks", "seen"),
    [
        ((-1,), "k=-1 is no number of draft tokens"),
        ((1, "3"), "k='3' is no number of draft tokens"),
        ((True,), "k=True is no number of draft tokens"),
        ((), "k=[] sweeps nothing"),
        ((0,), "k=[0] sweeps nothing"),
    ],
)
def test_what_is_no_k_is_refused(ks: tuple[object, ...], seen: str) -> None:
    with pytest.raises(ConfigError) as raised:
        swept(ks)

    assert str(raised.value) == f"{seen}; give whole numbers, at least one above 0, such as k=range(5)"
