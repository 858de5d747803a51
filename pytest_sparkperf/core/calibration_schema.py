"""Calibration files as plain documents: how they are written, and everything that may be wrong with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.calibration import DECODE, MIN_LAUNCHES, Calibration, MetricSpread
from pytest_sparkperf.core.faults import DocumentError, Fault, shown, unknown_keys
from pytest_sparkperf.core.kinds import COUNT, TEXT, is_number, is_whole
from pytest_sparkperf.core.metrics import METRICS

# History:
# 1  the first: spreads by metric, plateaus by workload
SCHEMA_VERSION = 1

_TEXTS = ("recorded_at", "server", "workload")
_COUNTS = ("launches", "rounds")
_SPREAD = ("launch_sd", "launch_low", "launch_high", "round_sd", "request_sd")
# On the log scale; a spread beyond this is no spread of speeds.
_LARGEST_SD = 10.0
_LARGEST_C = 200.0
_AGAIN = "calibrate again (sparkperf calibrate), or remove the file"


def to_document(found: Calibration) -> dict[str, Any]:
    """Return the plain document of a calibration, keys in the order in which people read them."""
    return {
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(found, name) for name in (*_TEXTS, *_COUNTS)},
        "spreads": {metric: asdict(spread) for metric, spread in found.spreads.items()},
        "plateaus_c": dict(sorted(found.plateaus_c.items())),
    }


def parse_calibration(document: Any) -> Calibration:
    """Read a document; raises DocumentError with every fault."""
    faults = tuple(_faults(document))
    if faults:
        raise DocumentError(faults)
    spreads = {
        metric: MetricSpread(**{name: float(words[name]) for name in _SPREAD})
        for metric, words in document["spreads"].items()
    }
    return Calibration(
        **{name: document[name] for name in (*_TEXTS, *_COUNTS)},
        spreads=MappingProxyType(spreads),
        plateaus_c=MappingProxyType({name: float(c) for name, c in document["plateaus_c"].items()}),
    )


def _faults(document: Any) -> Iterator[Fault]:
    if not isinstance(document, Mapping):
        yield Fault((), f"{shown(document)} is not a calibration; {_AGAIN}")
        return
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or not is_whole(version):
        yield Fault(("schema_version",), f"{shown(version)} is not {SCHEMA_VERSION}, the only one; {_AGAIN}")
        return
    keys = ("schema_version", *_TEXTS, *_COUNTS, "spreads", "plateaus_c")
    yield from unknown_keys(document, keys)
    yield from (Fault((), f"{key} is missing; {_AGAIN}") for key in keys if key not in document)
    for key, kind in [*((key, TEXT) for key in _TEXTS), *((key, COUNT) for key in _COUNTS)]:
        if key in document and not kind.accepts(document[key]):
            yield Fault((key,), f"{shown(document[key])} is not {kind.says}")
    launches: Any = document.get("launches")
    if is_whole(launches) and launches < MIN_LAUNCHES:
        yield Fault(("launches",), f"{launches} is too few; a calibration has at least {MIN_LAUNCHES} starts")
    if "spreads" in document:
        yield from _spread_faults(document["spreads"])
    if "plateaus_c" in document:
        yield from _plateau_faults(document["plateaus_c"])


def _spread_faults(spreads: Any) -> Iterator[Fault]:
    if not isinstance(spreads, Mapping) or DECODE not in spreads:
        yield Fault(("spreads",), f"{shown(spreads)} is not a mapping of metrics with {DECODE} among them")
        return
    for fault in unknown_keys(spreads, METRICS):
        yield Fault(("spreads", *fault.path), fault.text)
    for metric, words in spreads.items():
        for name in _SPREAD:
            value: Any = words.get(name) if isinstance(words, Mapping) else None
            if not (is_number(value) and 0 <= value <= _LARGEST_SD):
                text = f"{shown(value)} is not a spread: a number from 0 to {_LARGEST_SD:g}"
                yield Fault(("spreads", metric, name), text)


def _plateau_faults(plateaus: Any) -> Iterator[Fault]:
    if not isinstance(plateaus, Mapping):
        yield Fault(("plateaus_c",), f"{shown(plateaus)} is not a mapping of workloads to degrees C")
        return
    for workload, value in plateaus.items():
        if not (is_number(value) and 0 <= value <= _LARGEST_C):
            text = f"{shown(value)} is not a temperature: a number from 0 to {_LARGEST_C:g}"
            yield Fault(("plateaus_c", workload), text)
