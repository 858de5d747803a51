"""A gate measures before the body, judges after it, and never passes unmeasured, on every kind of test."""

from __future__ import annotations

import pytest

SMALL = "prompt_tokens=40, output_tokens=16, max_rounds=3"
EASY = f"@sparkperf(min_decode=1, {SMALL})"
HARD = f"@sparkperf(min_decode=10_000_000, {SMALL})"
HEAD = "import pytest, unittest\nfrom pytest_sparkperf import sparkperf\n"


def test_limit_that_holds_passes_and_one_that_does_not_fails(suite):
    suite.pytester.makepyfile(f"{HEAD}\n{EASY}\ndef test_easy(): ...\n\n{HARD}\ndef test_hard(): ...\n")

    result = suite.run()

    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines([r"FAIL min_decode=1e\+07: .* tok/s \(interval .* to .*\).*"])
    result.stdout.fnmatch_lines(["*= sparkperf =*", "*test_easy* [[]SIMULATED[]]", "*PASS min_decode=1: *"])


def test_body_sees_the_result_and_may_fail_on_it(suite):
    suite.pytester.makepyfile(
        f"{HEAD}\n{EASY}\ndef test_good(sparkperf_result): assert sparkperf_result.decode_tok_s > 1\n"
        f"\n{EASY}\ndef test_bad(sparkperf_result): assert sparkperf_result.decode_tok_s < 1\n"
    )

    suite.run().assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("skip", ["pytest.skip('no')", "pytest.importorskip('no_such_module')"])
def test_skip_in_the_body_does_not_hide_a_fail(suite, skip):
    suite.pytester.makepyfile(f"{HEAD}\n{HARD}\ndef test_hard():\n    {skip}\n")

    result = suite.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*FAIL min_decode=1e+07: *"])


def test_skip_in_the_body_stands_when_the_gate_passed(suite):
    suite.pytester.makepyfile(f"{HEAD}\n{EASY}\ndef test_easy():\n    pytest.skip('not today')\n")

    suite.run().assert_outcomes(skipped=1)


def test_unittest_cases_are_measured_and_their_skip_hides_nothing(suite):
    suite.pytester.makepyfile(
        f"""
{HEAD}
class TestCase(unittest.TestCase):
    {EASY}
    def test_easy(self): ...

    {HARD}
    def test_hard(self): ...

    {HARD}
    def test_hard_skipped(self):
        self.skipTest("no")
"""
    )

    result = suite.run()

    result.assert_outcomes(passed=1, failed=2)


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_async_tests_are_measured(suite, mode):
    suite.pytester.makepyfile(
        f"""
{HEAD}
@pytest.mark.asyncio
{EASY}
async def test_easy(sparkperf_result, sparkperf_async_client):
    assert sparkperf_result.decode_tok_s
    assert (await sparkperf_async_client.get("/health")).status_code == 200

@pytest.mark.asyncio
{HARD}
async def test_hard():
    pytest.skip("no")
"""
    )

    result = suite.run("-o", f"asyncio_mode={mode}")

    result.assert_outcomes(passed=1, failed=1)


def test_marks_of_module_class_and_function_merge_the_closest_winning(suite):
    suite.pytester.makepyfile(
        f"""
{HEAD}
pytestmark = sparkperf({SMALL})

@sparkperf(min_decode=10_000_000)
class TestSpeed:
    def test_a(self): ...

    @sparkperf(min_decode=1)
    def test_b(self, sparkperf_result):
        assert len(sparkperf_result.requests) == 12
        assert {{one.output_tokens for one in sparkperf_result.requests}} == {{16}}

    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=sparkperf(min_decode=2), id="long[x]/1")])
    def test_p(self, n, sparkperf_result):
        assert [verdict.limit for verdict in sparkperf_result.verdicts] == [2]
"""
    )

    result = suite.run("-rA")

    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["PASSED *::test_b", "PASSED *::test_p[[]long[[]x[]]/1[]]"])


def test_marked_item_without_fixtures_cannot_pass(suite):
    suite.pytester.makeconftest(
        """
import pytest

class Item(pytest.Item):
    def runtest(self): ...

class File(pytest.File):
    def collect(self):
        item = Item.from_parent(self, name="item")
        item.add_marker(pytest.mark.sparkperf(min_decode=1))
        yield item

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".txt":
        return File.from_parent(parent, path=file_path)
"""
    )
    suite.pytester.maketxtfile(test_it="")

    result = suite.run()

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["the sparkperf mark of this test measured nothing, and a gate that did not*"]
    )


def test_bare_mark_measures_and_reports(suite):
    suite.pytester.makepyfile(f"{HEAD}\n@sparkperf(prompt_tokens=40, output_tokens=16)\ndef test_it(): ...\n")

    result = suite.run()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_it [[]SIMULATED[]]", "  decode_tok_s * tok/s, *"])


def test_expected_failure_of_a_gate_is_expected(suite):
    suite.pytester.makepyfile(
        f"{HEAD}\n@pytest.mark.xfail(strict=True)\n{HARD}\ndef test_hard(): ...\n"
        f"\n@pytest.mark.xfail(strict=True)\n{EASY}\ndef test_easy(): ...\n"
    )

    suite.run().assert_outcomes(xfailed=1, failed=1)


def test_gates_work_without_the_cache_plugin_and_with_strict_options(suite):
    suite.pytester.makepyfile(f"{HEAD}\n{EASY}\ndef test_easy(): ...\n")

    suite.run("--strict-markers", "--strict-config", "-W", "error").assert_outcomes(passed=1)
