"""Errors a user may see: each text says what was seen, what is valid and what to do."""

from __future__ import annotations


class SparkPerfError(Exception):
    """Base of every error of this package; its text is meant for the user, without a traceback."""


class ConfigError(SparkPerfError):
    """sparkperf.yaml, an option or a mark cannot be used as written."""


class ServerError(SparkPerfError):
    """A server did not start, is not reachable or is not the one asked for."""


class MeasurementError(SparkPerfError):
    """A measurement is not valid; nothing can be said about speed."""


class BusyError(MeasurementError):
    """A server that others use had no room for a measurement; at another time it may."""
