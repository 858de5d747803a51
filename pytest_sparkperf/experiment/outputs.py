"""Runs an output comparison between the two servers of an A/B, and adds what it found to their Result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.schema import schema_check
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.equivalence_report import EquivalenceReport, report_lines
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.result import Result
from pytest_sparkperf.experiment.answers import OpenServer
from pytest_sparkperf.experiment.equivalence import compare_outputs, default_plan


@dataclass(frozen=True, slots=True)
class OutputPair:
    """The servers whose outputs are compared: ``off`` is the reference, ``on`` the one under test.

    ``second_off`` starts the reference once more, None where it is not ours to start.
    """

    off: Server
    on: Server
    names: tuple[str, str]
    second_off: Callable[[], Server] | None = None


async def compare(pair: OutputPair, spec: GateSpec) -> EquivalenceReport:
    """Ask both servers everything of ``same_output=True``; raises ConfigError without the extra ``mtp``."""
    plan = default_plan(concurrency=spec.load.concurrency, check=schema_check())
    second = pair.second_off
    return await compare_outputs(
        plan,
        lambda: _opened(pair.off),
        lambda: _opened(pair.on),
        None if second is None else lambda: _started(second),
        names=pair.names,
    )


def with_report(result: Result, report: EquivalenceReport) -> Result:
    """Return a result with the verdict on the outputs, and the report's lines as notes."""
    return replace(
        result,
        verdicts=(*result.verdicts, report.verdict),
        notes=(*result.notes, *report_lines(report)),
    )


@asynccontextmanager
async def _opened(server: Server) -> AsyncIterator[OpenServer]:
    async with open_async_client(server.url, api_key=server.api_key) as client:
        yield OpenServer.of(server, client)


@asynccontextmanager
async def _started(start: Callable[[], Server]) -> AsyncIterator[OpenServer]:
    # Starting and stopping take minutes and must not stand still in the loop.
    server = await asyncio.to_thread(start)
    try:
        opened: AbstractAsyncContextManager[OpenServer] = _opened(server)
        async with opened as one:
            yield one
    finally:
        await asyncio.to_thread(server.stop)
