"""``python -m pytest_sparkperf`` is the console script ``sparkperf``."""

from __future__ import annotations

import sys

from pytest_sparkperf.cli import main

sys.exit(main())
