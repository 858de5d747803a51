"""pytest's hooks, and nothing else: each calls one function and hands over the result."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_sparkperf import hookspecs, options, protocol, terminal
from pytest_sparkperf.fixtures import (
    _sparkperf_gate,
    sparkperf_ab,
    sparkperf_async_client,
    sparkperf_client,
    sparkperf_measure,
    sparkperf_result,
    sparkperf_server,
    sparkperf_sweep,
    sparkperf_targets,
)
from pytest_sparkperf.marks import MARK_LINE
from pytest_sparkperf.session import RUN, Listener, Run

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter  # pytest has no public name for this type

__all__ = [
    "_sparkperf_gate",
    "sparkperf_ab",
    "sparkperf_async_client",
    "sparkperf_client",
    "sparkperf_measure",
    "sparkperf_result",
    "sparkperf_server",
    "sparkperf_sweep",
    "sparkperf_targets",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK_LINE)
    settings = options.read_settings(config)
    run = config.stash[RUN] = Run.open(settings)
    run.say = terminal.progress(config)
    run.ask_facts = lambda target, facts: config.hook.pytest_sparkperf_fingerprint(
        config=config, target=target, facts=facts
    )
    if settings.enabled:
        config.pluginmanager.register(Listener(run), "sparkperf-listener")
        config.pluginmanager.register(terminal.LastWord(run), "sparkperf-last-word")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    protocol.inform_worker(node)


def pytest_report_header(config: pytest.Config) -> str | None:
    return terminal.header(config, config.stash[RUN])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[RUN].settings.enabled:
        protocol.prepare(items, config.stash[RUN].config)
    else:
        protocol.skip_gates(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    if run.settings.enabled:
        protocol.validate(session, run)


# Not tryfirst: what a mark skips is skipped and not refused.
def pytest_runtest_setup(item: pytest.Item) -> None:
    protocol.refuse_unfit(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from protocol.judge_around(item))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    protocol.leave(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return protocol.finish_report(item, call, report)


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    terminal.summary(terminalreporter, config.stash[RUN])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash.get(RUN, None)
    if run is not None:
        run.close()
        protocol.set_exit_status(session, run)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(RUN, None)
    if run is not None:
        run.close()
