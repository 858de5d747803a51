"""Fixtures: thin wiring between a test and the run; heavy layers are imported inside functions here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sparkperf.core.design import main_metric
from pytest_sparkperf.core.errors import SparkPerfError
from pytest_sparkperf.core.gate import GateSpec, parse_ab, parse_mark
from pytest_sparkperf.core.k_sweep import Sweep, run_sweep
from pytest_sparkperf.core.result import RequestResult, Result
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.marks import GATE, Gate, note_cell, rooted
from pytest_sparkperf.protocol import SKIP_REASON
from pytest_sparkperf.session import RUN, Run

if TYPE_CHECKING:
    from pytest_sparkperf.adapters.http import httpx
    from pytest_sparkperf.adapters.server import Server

# Takes the keywords, the gate and the result of a measurement in a test's body.
Note = Callable[[Mapping[str, Any], GateSpec, Result], None]
# Longer than any answer takes, and yet not for ever.
_CLIENT_TIMEOUT_S = 600.0


def _run(request: pytest.FixtureRequest) -> Run:
    run = request.config.stash[RUN]
    if not run.settings.enabled:
        pytest.skip(SKIP_REASON)  # asked for with getfixturevalue, which collection cannot see
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    run.make_folder = factory.mktemp
    return run


def _spec(request: pytest.FixtureRequest) -> GateSpec:
    gate = request.node.stash.get(GATE, None)
    return parse_mark({}) if gate is None or gate.spec is None else gate.spec


@pytest.fixture
def _sparkperf_gate(request: pytest.FixtureRequest) -> Gate:
    """Measure what the mark of this test asks for; the verdict falls after the body."""
    run = _run(request)
    gate: Gate | None = request.node.stash.get(GATE, None)
    if gate is None or not gate.marked or gate.spec is None:
        pytest.fail(
            "sparkperf_result is the result of a mark, and this test has none; put sparkperf(...) on the "
            "test, or measure in its body with sparkperf_measure",
            pytrace=False,
        )
    try:
        gate.result = run.measure(gate.spec, request.node.nodeid)
    except SparkPerfError as error:
        gate.error = str(error)
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    request.config.hook.pytest_sparkperf_result(item=request.node, result=gate.result)
    return gate


@pytest.fixture
def sparkperf_result(_sparkperf_gate: Gate) -> Result:
    """The :class:`Result` of this test's mark, measured before the body."""
    assert _sparkperf_gate.result is not None
    return _sparkperf_gate.result


@pytest.fixture
def sparkperf_server(request: pytest.FixtureRequest) -> Server:
    """The running server of this test's variant: ``url``, ``k``, ``facts``, ``log`` and ``metrics()``."""
    run = _run(request)
    try:
        return run.server(_spec(request))
    except SparkPerfError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _warm_server(request: pytest.FixtureRequest) -> Server:
    run = _run(request)
    try:
        return run.warm_server(_spec(request))
    except SparkPerfError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


@pytest.fixture
def sparkperf_client(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """An ``httpx.Client`` on the root of this test's server, which is warm; its key is set."""
    from pytest_sparkperf.adapters.http import open_client

    server = _warm_server(request)
    with open_client(server.url, api_key=server.api_key, timeout_s=_CLIENT_TIMEOUT_S) as client:
        yield client


@pytest.fixture
def sparkperf_async_client(request: pytest.FixtureRequest) -> Iterator[httpx.AsyncClient]:
    """An ``httpx.AsyncClient`` on the root of this test's warm server, for any event loop."""
    import asyncio

    from pytest_sparkperf.adapters.http import open_async_client

    server = _warm_server(request)
    client = open_async_client(
        server.url, api_key=server.api_key, timeout_s=_CLIENT_TIMEOUT_S, keep_alive=False
    )
    yield client
    # No connection outlives its request, so closing from another loop than the test's touches nothing of it.
    asyncio.run(client.aclose())


def _note(request: pytest.FixtureRequest) -> Note:
    return partial(note_cell, request.node)


class Measure:
    """Measures in a test's body; takes the keywords of the mark."""

    def __init__(
        self, run: Run, base: GateSpec, test: str, folder: Path, note: Note = lambda *_: None
    ) -> None:
        self._run = run
        self._base = base
        self._test = test
        self._folder = folder
        self._note = note

    def __call__(self, **keywords: Any) -> Result:
        """Measure a load and return its Result; without limits it ends at +-2 % or 6 rounds.

        The server is the mark's where the keywords name no other.
        Judges the limits it is given into ``verdicts`` and fails nothing. Raises ConfigError for wrong
        keywords, ServerError for a server that cannot be had.
        """
        __tracebackhide__ = True
        try:
            words = rooted({**self._base.variant_words, **keywords}, self._folder)
            spec = parse_mark(words, self._run.config.workloads)
            result = self._run.measure(spec, self._test, gates=1)
        except SparkPerfError as error:
            raise error.with_traceback(None) from None  # the caller's line says where, ours says nothing
        self._note(keywords, spec, result)
        return result

    def request(self, *, messages: Any = None, prompt: str | None = None, **body: Any) -> RequestResult:
        """Send one request of one's own and return what came of it; judges nothing."""
        __tracebackhide__ = True
        given = {"messages": messages, "prompt": prompt}
        given = {name: value for name, value in given.items() if value is not None}
        try:
            return self._run.request(self._base, body | given)
        except SparkPerfError as error:
            raise error.with_traceback(None) from None


@pytest.fixture
def sparkperf_measure(request: pytest.FixtureRequest) -> Measure:
    """Measure freely: ``sparkperf_measure(k=3, concurrency=8)``, ``sparkperf_measure.request(...)``."""
    return Measure(_run(request), _spec(request), request.node.nodeid, request.path.parent, _note(request))


class Compare:
    """Compares two servers in a test's body, measured in turn."""

    def __init__(
        self, run: Run, base: GateSpec, test: str, folder: Path, note: Note = lambda *_: None
    ) -> None:
        self._run = run
        self._base = base
        self._test = test
        self._folder = folder
        self._note = note

    def __call__(self, a: Any = None, b: Any = None, **keywords: Any) -> Result:
        """Measure A and B in turn and return the Result of B; ``ratio`` is B's speed over A's.

        ``a`` and ``b`` are variant keywords or a target's name; left out, they are the mark's. The keywords
        are the mark's, for both. Raises ConfigError for wrong ones, ServerError for a server that cannot be
        had.
        """
        __tracebackhide__ = True
        try:
            spec = self.spec(a, b, **keywords)
            result = self._run.measure(spec, self._test, gates=1)
        except SparkPerfError as error:
            raise error.with_traceback(None) from None
        self._note({"a": a, "b": b, **keywords}, spec, result)
        return result

    def spec(self, a: Any = None, b: Any = None, **keywords: Any) -> GateSpec:
        """Return what is measured; raises ConfigError."""
        words, workloads = rooted(keywords, self._folder), self._run.config.workloads
        return parse_ab(a, b, words, self._base, workloads)


@pytest.fixture
def sparkperf_ab(request: pytest.FixtureRequest) -> Compare:
    """Compare two servers: ``sparkperf_ab(a={"k": 0}, b={"k": 3}).ratio``."""
    return Compare(_run(request), _spec(request), request.node.nodeid, request.path.parent, _note(request))


class SweepK:
    """Sweeps the number of draft tokens in a test's body."""

    def __init__(self, compare: Compare, base: GateSpec, gate: Gate | None) -> None:
        self._compare = compare
        self._base = base
        self._gate = gate

    def __call__(self, k: Iterable[int] = range(4), **keywords: Any) -> Sweep:
        """Measure each k in turn with k=0, then the fastest with its neighbours; return the Sweep.

        The keywords are the mark's, for all servers; up to 6 rounds where they do not say otherwise. Table
        and chart are shown in the terminal section. Raises what ``sparkperf_ab`` raises.
        """
        __tracebackhide__ = True
        words = {"max_rounds": 6, **keywords, "min_speedup": 1.0}

        def compare(a: int, b: int) -> Result:
            __tracebackhide__ = True
            return self._compare({"k": a}, {**self._base.variant_words, "k": b}, **words)

        try:
            metric = main_metric(self._compare.spec({"k": 0}, {"k": 1}, **words).load)
            sweep = run_sweep(k, compare, metric)
        except SparkPerfError as error:
            raise error.with_traceback(None) from None
        if self._gate is not None:
            self._gate.tables += sweep.lines()
        return sweep


@pytest.fixture
def sparkperf_sweep(request: pytest.FixtureRequest) -> SweepK:
    """Find out which number of draft tokens pays: ``sparkperf_sweep(k=range(5)).peak.k``."""
    base, run = _spec(request), _run(request)
    compare = Compare(run, base, request.node.nodeid, request.path.parent)
    return SweepK(compare, base, request.node.stash.get(GATE, None))


@pytest.fixture
def sparkperf_targets(request: pytest.FixtureRequest) -> Mapping[str, Target]:
    """A read-only view of the targets of this run, by name."""
    return MappingProxyType(_run(request).targets)
