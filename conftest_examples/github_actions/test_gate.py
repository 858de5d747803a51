"""What every change must keep: a floor, no loss against the nightly records, and MTP worth having."""

from pytest_sparkperf import sparkperf

pytestmark = sparkperf(k=3)


@sparkperf(min_decode=90)
def test_fast_enough():
    """One stream, three draft tokens."""


@sparkperf(max_slowdown=0.05)
def test_no_slower_than_the_nights_before():
    """Judged by what nightly.yml recorded on this machine; nothing recorded yet fails the gate."""


@sparkperf(against={"k": 0}, min_speedup=1.25)
def test_mtp_pays():
    """No draft against three, in turn."""
