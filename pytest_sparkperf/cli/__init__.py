"""The console script ``sparkperf``: exit 0 fine, 1 finding, 2 usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_LATER = {
    "calibrate": "Verdicts that hold",
    "doctor": "Servers",
    "facts": "Servers",
    "metrics": "MTP",
    "plan": "Verdicts that hold",
    "render": "Servers",
    "stop": "Servers",
}
_USAGE = """\
usage: sparkperf COMMAND [ARGUMENTS]

commands:
  baseline  list, show, diff, prune or import what runs are judged against; `sparkperf baseline --help`
  compare   put two results of other tools beside each other; `sparkperf compare --help`
  sim       run the embedded simulator of a vLLM server; `sparkperf sim --help` lists its flags

not yet available: {later}
Gates run under pytest: pytest --sparkperf
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    usage = _USAGE.format(later=", ".join(sorted(_LATER)))
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage, end="")
        return 0 if arguments else 2
    command, *rest = arguments
    if command == "sim":
        from pytest_sparkperf.sim.cli import main as simulate

        return simulate(rest)
    if command == "baseline":
        from pytest_sparkperf.cli.baseline import main as baseline

        return baseline(rest)
    if command == "compare":
        from pytest_sparkperf.cli.compare import main as compare

        return compare(rest)
    if command in _LATER:
        print(
            f"sparkperf: {command} is not yet available (it comes with the feature {_LATER[command]!r})",
            file=sys.stderr,
        )
        return 2
    print(
        f"sparkperf: there is no command {command!r}; valid are baseline, compare, sim\n\n{usage}",
        end="",
        file=sys.stderr,
    )
    return 2
