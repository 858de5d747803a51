"""The header line and the terminal section of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from pytest_sparkperf.core.sweep import sweep_lines
from pytest_sparkperf.session import Run

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter  # pytest has no public name for this type

_COLOURS = {"PASS": "green", "FAIL": "red", "ERROR": "red", "INCONCLUSIVE": "yellow"}


NOTHING_TO_RECORD = (
    "nothing was recorded: no mark of these tests is judged by a baseline, which max_slowdown without "
    "against is"
)


def header(config: pytest.Config, run: Run) -> str | None:
    """Say what will be measured; nothing when gates are off."""
    settings = run.settings
    if not settings.enabled:
        return None
    source = f", {settings.config_file.name}" if settings.config_file else ""
    source += f" of {settings.config_ref}" if settings.config_ref else ""
    policy = "are skipped" if settings.inconclusive == "skip" else "fail"
    stored = f", baselines of {settings.baseline_ref}" if settings.baseline_ref else ""
    stored += ", recording" if settings.record else ""
    return f"sparkperf: {_measured(config, run)}{source}{stored}, inconclusive gates {policy}"


def _measured(config: pytest.Config, run: Run) -> str:
    settings = run.settings
    if settings.urls:
        urls = [url if k is None else f"k={k} at {url}" for k, url in settings.urls]
        return f"target {', '.join(urls)}"
    named = settings.target or run.config.default_target
    if named is not None or len(run.config.targets) == 1:
        return f"target {named or next(iter(run.config.targets))}"
    if run.config.targets or config.hook.pytest_sparkperf_targets.get_hookimpls():
        return "the target that each test names"
    return "no target is named" if settings.ci else "no target is named, so the embedded simulator serves"


def summary(reporter: TerminalReporter, run: Run) -> None:
    """Write what each gate found, unless summaries are off."""
    tables = list(sweep_lines(run.cells))
    if not (run.seen or tables) or reporter.no_summary:
        return
    reporter.section("sparkperf")
    if run.changed:
        reporter.write_line(f"changed against {run.settings.config_ref}:", yellow=True)
        for line in run.changed:
            reporter.write_line(f"  {line}", yellow=True)
    for seen in run.seen:
        first, *rest = seen.lines
        reporter.write_line(first)
        for line in rest:
            word = next((word for word in _COLOURS if word in line.split(":", 1)[0].split()), None)
            reporter.write_line(line, **({_COLOURS[word]: True} if word else {}))
    for line in tables:
        reporter.write_line(line)


class LastWord:
    """Writes what the run as a whole has proven below everything else, where it is read."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> Generator[None]:
        """Let all others write first."""
        yield
        run = self._run
        if run.trouble is not None:
            terminalreporter.write_line(run.trouble, red=True, bold=True)
        if run.settings.record and not run.recordable:
            terminalreporter.write_line(NOTHING_TO_RECORD, yellow=True, bold=True)
        if run.unproven:
            noun = "gate" if run.unproven == 1 else "gates"
            text = f"NOT PROVEN: {run.unproven} {noun} inconclusive"
            if not run.proven:
                text += ", none reached a verdict, so the run fails"
            terminalreporter.write_line(text, yellow=True, bold=True)


def progress(config: pytest.Config) -> Callable[[str], None]:
    """Return what tells the user, while a test runs, what a long wait is for."""

    def say(text: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        if reporter is not None:
            with nullcontext() if capture is None else capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.write_line(f"sparkperf: {text}")

    return say
