"""Runs an output comparison between the two servers of an A/B, and adds what it found to their Result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.own_files import read_own_files
from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.equivalence_report import EquivalenceReport, report_lines
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.question import OUTPUT_TOKENS, own_questions
from pytest_sparkperf.core.result import Result, Verdict
from pytest_sparkperf.experiment.answers import OpenServer
from pytest_sparkperf.experiment.equivalence import Asked, ask_both, default_plan

BROKEN = "the outputs were not compared, since the measurement before ended in ERROR"


async def ask_servers(off: Server, on: Server, spec: GateSpec) -> Asked:
    """Ask both servers everything of ``same_output=True``; raises ConfigError without the extra ``mtp``.

    Where lines are in doubt afterwards, a second start of ``off`` may clear them: see :func:`ask_again`.
    """
    options = dict(spec.output_options)
    own = own_questions(read_own_files(spec.load), max_tokens=options.get("max_tokens", OUTPUT_TOKENS))
    plan = default_plan(concurrency=spec.load.concurrency, own=own, check=schema_check(), **options)
    return await ask_both(plan, lambda: _opened(off), lambda: _opened(on))


async def ask_again(asked: Asked, second_off: Server) -> None:
    """Ask a second start of the reference what is in doubt."""
    async with _opened(second_off) as server:
        await asked.ask_launch(server)


def with_report(result: Result, report: EquivalenceReport) -> Result:
    """Return a result with the verdict on the outputs, and the report's lines as notes."""
    return replace(
        result,
        verdicts=(*result.verdicts, report.verdict),
        notes=(*result.notes, *report_lines(report)),
    )


def without_report(result: Result, reason: str) -> Result:
    """Return a result, its other verdicts as they are, whose outputs could not be compared."""
    verdict = Verdict("same_output", "ERROR", None, None, None, None, None, reason)
    return replace(result, verdicts=(*result.verdicts, verdict))


@asynccontextmanager
async def _opened(server: Server) -> AsyncIterator[OpenServer]:
    async with open_async_client(server.url, api_key=server.api_key) as client:
        yield OpenServer.of(server, client)
