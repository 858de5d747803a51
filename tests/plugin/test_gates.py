"""A gate measures before the body, judges after it, and never passes unmeasured, on every kind of test."""

from __future__ import annotations

import pytest
from suite_runner import Suite

SMALL = "prompt_tokens=40, output_tokens=16, max_rounds=3"
EASY = f"@sparkperf(min_decode=1, {SMALL})"
HARD = f"@sparkperf(min_decode=10_000_000, {SMALL})"
HEAD = "import pytest, unittest\nfrom pytest_sparkperf import sparkperf\n"


def test_a_limit_that_holds_passes_one_that_does_not_fails_and_a_bare_mark_reports(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_it=f"""
{HEAD}
{EASY}
def test_easy(sparkperf_result):
    assert sparkperf_result.decode_tok_s > 1
    assert len(sparkperf_result.requests) == 12
    assert {{one.output_tokens for one in sparkperf_result.requests}} == {{16}}

{HARD}
def test_hard(): ...

@sparkperf({SMALL})
def test_bare(sparkperf_result):
    assert sparkperf_result.verdicts == ()
"""
    )

    result = suite.run("--strict-markers", "--strict-config", "-W", "error")

    result.assert_outcomes(passed=2, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.re_match_lines(
        [
            r"SIMULATED FAIL min_decode=10000000: [\d.]+ tok/s \(interval [\d.]+ to [\d.]+\).*",
            r"=+ sparkperf =+",
            r"test_it\.py::test_easy",
            r"  SIMULATED PASS min_decode=1: [\d.]+ tok/s \(interval [\d.]+ to [\d.]+\).*",
            r"test_it\.py::test_bare",
            r"  SIMULATED decode_tok_s [\d.]+ tok/s, .*",
        ]
    )


def test_marks_of_module_class_and_function_merge_the_closest_winning(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(
        f"""
{HEAD}
from pytest_sparkperf.marks import GATE

pytestmark = sparkperf(name="PASS")

@pytest.fixture
def asked(request):
    spec = request.node.stash[GATE].spec
    return [limit.bound for limit in spec.limits], spec.k

@sparkperf(min_decode=100, k=3)
class TestSpeed:
    def test_a(self, asked): assert asked == ([100], 3)

    @sparkperf(min_decode=120)
    def test_b(self, asked): assert asked == ([120], 3)

LONG = pytest.param(2048, marks=sparkperf(min_decode=60), id="long[x]/1")

@pytest.mark.parametrize("n", [pytest.param(128, id="short"), LONG])
@sparkperf(min_decode=80)
def test_p(n, asked): assert asked == ([80 if n == 128 else 60], None)
"""
    )

    result = suite.quick_run("-rA")

    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["PASSED *::test_p[[]long[[]x[]]/1[]]"])


def test_a_first_failure_may_end_the_run(suite: Suite) -> None:
    suite.do_not_measure()
    suite.pytester.makepyfile(
        f"{HEAD}\npytestmark = sparkperf(name='FAIL', min_decode=200)\n"
        "def test_first(): ...\n\ndef test_not_reached(): ...\n"
    )

    result = suite.quick_run("-x")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["SIMULATED FAIL min_decode=200: *", "*! stopping after 1 failures !*"])


def test_unittest_cases_are_measured_and_their_skip_hides_nothing(suite: Suite) -> None:
    suite.pytester.makepyfile(
        f"""
{HEAD}
class TestCase(unittest.TestCase):
    {EASY}
    def test_easy(self): ...

    {HARD}
    def test_hard_skipped(self):
        self.skipTest("no")
"""
    )

    result = suite.run()

    result.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("mode", ["strict", pytest.param("auto", marks=pytest.mark.slow)])
def test_async_tests_are_measured(suite: Suite, mode: str) -> None:
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

@pytest.mark.asyncio(loop_scope="session")
async def test_client_in_the_loop_of_the_session(sparkperf_async_client):
    assert (await sparkperf_async_client.get("/health")).status_code == 200
"""
    )

    result = suite.run("-o", f"asyncio_mode={mode}")

    result.assert_outcomes(passed=2, failed=1)


def test_marked_item_without_fixtures_cannot_pass(suite: Suite) -> None:
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


SERVERS = """version: 1
targets:
  cut: {launch: sim, args: {slowdown: 0.4, fault: truncate_after=5}}
  mum: {launch: sim, args: {slowdown: 0.4, fault: no_usage}}
"""
CUT = (
    "SIMULATED ERROR {}: a request failed twice (truncated): The stream ended without [DONE] and without "
    "both a finish reason and usage. Seen: RemoteProtocolError: peer closed connection without sending "
    "complete message body (incomplete chunked read)\nlast lines of the server's log:\n  | "
)
MUM = (
    "SIMULATED ERROR min_decode=1: a request failed twice (no_usage): The server reported no usage, and "
    "tokens are never counted from chunks; something between client and server may remove stream_options.\n"
)


def test_a_broken_measurement_fails_its_test_before_the_body(suite: Suite) -> None:
    suite.yaml(SERVERS)
    suite.pytester.makepyfile(
        f"""
{HEAD}
@sparkperf(target="cut", min_decode=1, {SMALL})
def test_cut(): print("the body ran")

@sparkperf(target="cut", {SMALL})
def test_cut_bare(sparkperf_result): print("the body ran")

@pytest.mark.parametrize("n", [1])
@sparkperf(target="mum", min_decode=1, {SMALL})
def test_mum(n): pytest.skip("the body ran")
"""
    )

    result = suite.run(attach=False)

    result.assert_outcomes(failed=3)
    out = str(result.stdout)
    assert f"\n{CUT.format('min_decode=1')}" in out
    assert f"\n{CUT.format('measurement')}" in out
    assert f"\n{MUM}" in out
    assert "SIMULATED FAIL max_error_rate=0: 1.00 (interval " in out
    assert "the body ran" not in out
    # The log stands in the failure text, the section below says what happened in one line each.
    section = out.rpartition("= sparkperf =")[2]
    assert section.count("\n  SIMULATED ERROR ") == 3
    assert "  | " not in section


@pytest.mark.parametrize("runner", ["none", "anyio"])
def test_an_async_test_without_its_runner_fails_and_with_anyio_is_measured(suite: Suite, runner: str) -> None:
    mark = "@pytest.mark.anyio\n" if runner == "anyio" else ""
    suite.pytester.makepyfile(
        f"""
{HEAD}
@pytest.fixture
def anyio_backend(): return "asyncio"

{mark}{EASY}
async def test_async(sparkperf_result): assert sparkperf_result.decode_tok_s
"""
    )

    result = suite.run("-p", "no:asyncio")

    result.assert_outcomes(**({"passed": 1} if runner == "anyio" else {"failed": 1}))
