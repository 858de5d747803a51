from __future__ import annotations

import pytest

from pytest_sparkperf.core.mark_source import changed_keywords, marks_in

SOURCE = """
import pytest
from pytest_sparkperf import sparkperf
from limits import IMPORTED

FLOOR = 100
pytestmark = [pytest.mark.slow, sparkperf(k=3, name="a"), sparkperf(k=0, max_rounds=12)]

@sparkperf(min_decode=IMPORTED, **more)
@pytest.mark.sparkperf(min_decode=FLOOR)
def test_closest(): ...

@sparkperf(k=2)
class TestGroup:
    pytestmark = sparkperf(min_prefill=5)

    @sparkperf(against={"k": 0}, min_speedup=1.25)
    async def test_async(self): ...

    class TestInner:
        def test_inner(self): ...

def test_of_the_module(): sparkperf(min_decode=1)
"""


def test_marks_merge_as_pytest_merges_them() -> None:
    outer = {"k": "3", "name": "'a'", "max_rounds": "12"}
    group = outer | {"k": "2", "min_prefill": "5"}

    assert marks_in(SOURCE) == {
        "test_closest": outer | {"min_decode": "100", "**": "more"},
        "TestGroup::test_async": group | {"against": "{'k': 0}", "min_speedup": "1.25"},
        "TestGroup::TestInner::test_inner": group,
        "test_of_the_module": outer,
    }


@pytest.mark.parametrize("text", ["def (", "a\0b", "((((" * 500])
def test_what_is_not_python_has_no_marks(text: str) -> None:
    assert marks_in(text) is None


def test_each_keyword_that_differs_is_named() -> None:
    before = {"test_a": {"min_decode": "100", "max_ttft_ms": "500", "k": "3"}}
    after = {"test_a": {"min_decode": "80", "k": "3", "tolerance": "0.1"}, "test_b": {"min_decode": "1"}}

    assert changed_keywords(before, after, "test_a", "main") == [
        "min_decode=100 -> 80",
        "max_ttft_ms=500 is gone",
        "tolerance=0.1 is new",
    ]
    assert changed_keywords(before, after, "test_b", "main") == ["its mark is new, main has none"]
    assert changed_keywords(before, before, "test_a", "main") == []
    assert changed_keywords(before, after, "test_c", "main") == []
