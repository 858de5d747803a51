"""``python -m pytest_sparkperf.sim`` starts a simulated server."""

from __future__ import annotations

import sys

from pytest_sparkperf.sim.cli import main

sys.exit(main(sys.argv[1:]))
