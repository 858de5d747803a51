"""The header line and the terminal section of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_sparkperf.session import Run

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter  # pytest has no public name for this type

_COLOURS = {"PASS": "green", "FAIL": "red", "ERROR": "red", "INCONCLUSIVE": "yellow"}


def header(run: Run) -> str | None:
    """Say what will be measured; nothing when gates are off."""
    settings = run.settings
    if not settings.enabled:
        return None
    if settings.urls:
        target = ", ".join(url if k is None else f"k={k} at {url}" for k, url in settings.urls)
    else:
        target = settings.target or run.config.default_target or "the embedded simulator"
    source = f", {settings.config_file.name}" if settings.config_file else ""
    return f"sparkperf: target {target}{source}, inconclusive gates {_inconclusive(settings.inconclusive)}"


def _inconclusive(policy: str) -> str:
    return "are skipped" if policy == "skip" else "fail"


def summary(reporter: TerminalReporter, run: Run) -> None:
    """Write what each gate found, and what the run as a whole has proven."""
    if not run.settings.enabled or not run.seen:
        return
    reporter.section("sparkperf")
    for seen in run.seen:
        colour = {_COLOURS.get(seen.outcome, "cyan"): True}
        first, *rest = seen.lines
        reporter.write_line(first)
        for line in rest:
            reporter.write_line(line, **(colour if line.lstrip().startswith(tuple(_COLOURS)) else {}))
    if run.unproven:
        noun = "gate" if run.unproven == 1 else "gates"
        reporter.write_line(f"NOT PROVEN: {run.unproven} {noun} inconclusive", yellow=True, bold=True)
