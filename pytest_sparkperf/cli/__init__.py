"""The console script ``sparkperf``: exit 0 fine, 1 finding, 2 usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

# Each command is the ``main`` of a module; all are imported only when they are called.
_COMMANDS = {
    "baseline": (
        "pytest_sparkperf.cli.baseline",
        "list, show, diff, prune, import or bootstrap what runs are judged by",
    ),
    "calibrate": ("pytest_sparkperf.cli.calibrate", "measure how much a server and this machine scatter"),
    "compare": ("pytest_sparkperf.cli.compare", "put two results of other tools beside each other"),
    "doctor": ("pytest_sparkperf.cli.doctor", "say whether this machine is fit to measure"),
    "facts": ("pytest_sparkperf.cli.facts", "read the facts out of a server's log"),
    "metrics": (
        "pytest_sparkperf.cli.metrics",
        "read acceptance and tokens out of one or two /metrics pages",
    ),
    "plan": ("pytest_sparkperf.cli.plan", "say what a suite will start, take and be able to decide"),
    "render": ("pytest_sparkperf.cli.render", "print the command that starts a target, without starting it"),
    "sim": ("pytest_sparkperf.sim.cli", "run the embedded simulator of a vLLM server"),
    "stop": ("pytest_sparkperf.cli.stop", "end what an earlier run of ours left behind"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    command, *rest = arguments
    if command in _COMMANDS:
        status: int = import_module(_COMMANDS[command][0]).main(rest)
        return status
    print(
        f"sparkperf: there is no command {command!r}; valid are {', '.join(_COMMANDS)}\n\n{usage()}",
        file=sys.stderr,
    )
    return 2


def usage() -> str:
    """Return the text that lists all commands."""
    width = max(map(len, _COMMANDS))
    commands = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in _COMMANDS.items())
    return (
        f"usage: sparkperf COMMAND [ARGUMENTS]\n\ncommands (each has --help):\n{commands}\n\n"
        "Gates run under pytest: pytest --sparkperf"
    )
