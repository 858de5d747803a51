"""Baseline files as plain documents: how they are written, and everything that may be wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.baseline import (
    ANCHOR_RECORDS,
    KEPT_RECORDS,
    MAX_SERIES,
    OWN,
    TIME_FORMAT,
    BaselineFile,
    Figure,
    Record,
    Series,
    Work,
)
from pytest_sparkperf.core.faults import DocumentError, Fault, shown, unknown_keys
from pytest_sparkperf.core.frozen import FrozenMap, thaw
from pytest_sparkperf.core.hardware import machine_from_document
from pytest_sparkperf.core.kinds import (
    COUNT,
    COUNT_OR_ZERO,
    POSITIVE,
    TEXT,
    Kind,
    is_number,
    is_plain_mapping,
    is_whole,
    one_of,
)
from pytest_sparkperf.core.metrics import METRICS

# History:
# 1  the first: test, hardware, series of records, each with its own work
SCHEMA_VERSION = 1
# From the version that is its key to the next one; a file is brought up to date when it is read, and written
# in the new form with the next record.
Migration = Callable[[dict[str, Any]], dict[str, Any]]
MIGRATIONS: Mapping[int, Migration] = MappingProxyType({})

# No figure of a machine comes near this; beyond it arithmetic on a forged file could overflow.
_LARGEST = 1e12


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.strptime(value, TIME_FORMAT).strftime(TIME_FORMAT) == value
    except ValueError:
        return False


def _is_bounded(value: Any) -> bool:
    return is_number(value) and abs(value) <= _LARGEST


_NUMBER = Kind("a number", _is_bounded)
_POSITIVE = Kind(POSITIVE.says, lambda value: _is_bounded(value) and value > 0)
_NOT_NEGATIVE = Kind("a number of 0 or more", lambda value: _is_bounded(value) and value >= 0)
_COUNT = Kind(COUNT.says, lambda value: COUNT.accepts(value) and value <= _LARGEST)
_GPUS = Kind("a whole number from 1 to 1024", lambda value: COUNT.accepts(value) and value <= 1024)
_SHARES = Kind(
    "a mapping of names to numbers",
    lambda value: is_plain_mapping(value) and all(map(_is_bounded, value.values())),
)
_BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool))
_TIME = Kind("a time in UTC such as '2026-11-30T16:05:34Z'", _is_time)
_FACTS = Kind("a mapping of names to plain values", is_plain_mapping)
_METRICS = Kind("a mapping of metrics", lambda value: isinstance(value, Mapping))
_LIST = Kind("a list of GPUs", lambda value: isinstance(value, list))
_Rules = Mapping[str, tuple[Kind, bool]]  # kind, and whether the key must be there

_WORK: _Rules = MappingProxyType(
    {
        "model": (TEXT, True),
        "k": (COUNT_OR_ZERO, False),
        "speculator": (TEXT, False),
        "workload": (TEXT, True),
        "metric_rule": (TEXT, False),
        "source": (TEXT, False),
    }
)
_RECORD: _Rules = MappingProxyType(
    {
        "run": (TEXT, True),
        "recorded_at": (_TIME, True),
        "anchor": (_BOOLEAN, False),
        "commit": (TEXT, False),
        "batch": (TEXT, False),
        "rounds": (_COUNT, True),
        "temperature_c": (_NUMBER, False),
        "figures": (_METRICS, True),
        "thermal": (_SHARES, False),
        "flags": (_SHARES, False),
        "facts": (_FACTS, False),
    }
)
_FIGURE: _Rules = MappingProxyType({"value": (_NOT_NEGATIVE, True), "sd": (_POSITIVE, False)})
_HARDWARE: _Rules = MappingProxyType(
    {
        "source": (one_of("seen", "declared", "simulator"), True),
        "gpus": (_LIST, False),
        "cpu": (TEXT, False),
        "cores": (_COUNT, False),
        "architecture": (TEXT, False),
        "memory_gib": (_POSITIVE, False),
        "nodes": (_COUNT, False),
    }
)
_GPU: _Rules = MappingProxyType(
    {
        "name": (TEXT, True),
        "count": (_GPUS, True),
        "memory_gib": (_POSITIVE, False),
        "capability": (TEXT, False),
        "max_power_w": (_COUNT, False),
    }
)


_NEWER = (
    f"{{version}} is newer than {SCHEMA_VERSION}, the newest that this version of pytest-sparkperf reads; "
    "update pytest-sparkperf here, or record again with this one"
)


class NewerSchemaError(DocumentError):
    """A file was written by a later version of this package."""


def parse_baseline(document: Any) -> BaselineFile:
    """Read a document; raises DocumentError with every fault, NewerSchemaError for a later schema."""
    version: Any = document.get("schema_version") if isinstance(document, Mapping) else None
    if is_whole(version):
        if version > SCHEMA_VERSION:
            raise NewerSchemaError((Fault(("schema_version",), _NEWER.format(version=version)),))
        document = migrate(document, version, SCHEMA_VERSION, MIGRATIONS)
    faults = tuple(_faults(document))
    if faults:
        raise DocumentError(faults)
    return BaselineFile(
        test=document["test"],
        machine=machine_from_document(document["hardware"]),
        series=tuple(_series(words) for words in document["series"]),
    )


def migrate(
    document: Mapping[str, Any], version: int, newest: int, migrations: Mapping[int, Migration]
) -> Mapping[str, Any]:
    """Bring a document from its version to the newest, one step after the other."""
    for step in range(max(version, 1), newest):
        document = {**migrations[step](dict(document)), "schema_version": step + 1}
    return document


def to_document(file: BaselineFile) -> dict[str, Any]:
    """Return the plain document of a file, keys in the order in which people read them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "test": file.test,
        "hardware": file.machine.as_document(),
        "series": [
            {
                "work": _work_document(series.work),
                "records": [_record_document(one) for one in series.records],
            }
            for series in file.series
        ],
    }


def _work_document(work: Work) -> dict[str, Any]:
    return {name: value for name in _WORK if (value := getattr(work, name)) is not None}


def _record_document(record: Record) -> dict[str, Any]:
    figures = {
        name: {"value": record.figures[name].value, **({} if sd is None else {"sd": sd})}
        for name in METRICS
        if name in record.figures
        for sd in [record.figures[name].sd]
    }
    words = {name: thaw(getattr(record, name)) for name in _RECORD} | {"figures": figures}
    return {
        name: value
        for name, value in words.items()
        if value is not None and value is not False and value != {}
    }


def _series(words: Mapping[str, Any]) -> Series:
    work = {name: words["work"].get(name) for name in _WORK if name != "source"}
    records = sorted(map(_record, words["records"]), key=lambda one: (one.recorded_at, one.run))
    return Series(Work(**work, source=words["work"].get("source", OWN)), tuple(records))


def _record(words: Mapping[str, Any]) -> Record:
    plain = ("run", "recorded_at", "rounds", "temperature_c", "commit", "batch", "anchor")
    rest: dict[str, Any] = {name: words[name] for name in plain if name in words}
    rest |= {name: FrozenMap(words.get(name)) for name in ("thermal", "flags", "facts")}
    figures = {name: Figure(float(one["value"]), one.get("sd")) for name, one in words["figures"].items()}
    return Record(figures=MappingProxyType(figures), **rest)


# ---------------------------------------------------------------------- faults
def _faults(document: Any) -> Iterator[Fault]:
    if not isinstance(document, Mapping):
        yield Fault((), f"{shown(document)} is not a baseline; remove the file, or take it from git again")
        return
    text = "is missing; remove the file, or take it from git again"
    yield from unknown_keys(document, ("schema_version", "test", "hardware", "series"))
    yield from (
        Fault((), f"{key} {text}")
        for key in ("schema_version", "test", "hardware", "series")
        if key not in document
    )
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION or not is_whole(version):
        yield Fault(
            ("schema_version",),
            f"{shown(document['schema_version'])} is no schema version; valid is {SCHEMA_VERSION}",
        )
    if "test" in document and not TEXT.accepts(document["test"]):
        yield Fault(("test",), f"{shown(document['test'])} is not {TEXT.says}")
    if "hardware" in document:
        yield from _below(("hardware",), _hardware_faults(document["hardware"]))
    if "series" in document:
        yield from _below(("series",), _list_faults(document["series"], "series", MAX_SERIES, _series_faults))


def _hardware_faults(words: Any) -> Iterator[Fault]:
    yield from _mapping_faults(words, _HARDWARE)
    if isinstance(words, Mapping) and isinstance(words.get("gpus"), list):
        for index, gpu in enumerate(words["gpus"]):
            yield from _below(("gpus", index), _mapping_faults(gpu, _GPU))


def _series_faults(words: Any) -> Iterator[Fault]:
    if not isinstance(words, Mapping) or "work" not in words or "records" not in words:
        yield Fault((), f"{shown(words)} is not a series; it needs work: and records:")
        return
    yield from unknown_keys(words, ("work", "records"))
    yield from _below(("work",), _mapping_faults(words["work"], _WORK))
    most = KEPT_RECORDS + ANCHOR_RECORDS
    yield from _below(("records",), _list_faults(words["records"], "records", most, _record_faults))
    if not words["records"]:
        yield Fault(("records",), "is empty; a series has at least one record")
    yield from _doubled(words["records"])


def _record_faults(words: Any) -> Iterator[Fault]:
    yield from _mapping_faults(words, _RECORD)
    if not isinstance(words, Mapping) or not isinstance(words.get("figures"), Mapping):
        return
    yield from _below(("figures",), unknown_keys(words["figures"], METRICS))
    for name, figure in words["figures"].items():
        yield from _below(("figures", name), _mapping_faults(figure, _FIGURE))


def _doubled(records: Any) -> Iterator[Fault]:
    seen: dict[str, int] = {}
    for index, record in enumerate(records if isinstance(records, list) else ()):
        run = record.get("run") if isinstance(record, Mapping) else None
        if not isinstance(run, str):
            continue
        if run in seen:
            yield Fault(("records", index, "run"), f"{run!r} is recorded twice; keep one of these records")
        seen.setdefault(run, index)


def _list_faults(
    words: Any, name: str, most: int, faults: Callable[[Any], Iterator[Fault]]
) -> Iterator[Fault]:
    if not isinstance(words, list):
        yield Fault((), f"{shown(words)} is not a list of {name}")
        return
    if len(words) > most:
        yield Fault((), f"holds {len(words)} {name}, at most {most} are kept; sparkperf wrote no such file")
    for index, item in enumerate(words[:most]):
        yield from _below((index,), faults(item))


def _mapping_faults(words: Any, rules: _Rules) -> Iterator[Fault]:
    if not isinstance(words, Mapping):
        yield Fault((), f"{shown(words)} is not a mapping with the keys {', '.join(rules)}")
        return
    yield from unknown_keys(words, rules)
    for key, (kind, needed) in rules.items():
        if key not in words:
            if needed:
                yield Fault((), f"{key} is missing")
        elif not kind.accepts(words[key]):
            yield Fault((key,), f"{shown(words[key])} is not {kind.says}")


def _below(path: tuple[Any, ...], faults: Iterator[Fault]) -> Iterator[Fault]:
    return (Fault((*path, *fault.path), fault.text) for fault in faults)
