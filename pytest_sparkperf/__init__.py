"""pytest-sparkperf: a pre-merge performance gate for vLLM servers."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.errors import ConfigError, MeasurementError, ServerError, SparkPerfError
from pytest_sparkperf.core.result import RequestResult, Result, Verdict

sparkperf = pytest.mark.sparkperf

__all__ = [
    "ConfigError",
    "MeasurementError",
    "RequestResult",
    "Result",
    "ServerError",
    "SparkPerfError",
    "Verdict",
    "sparkperf",
]
