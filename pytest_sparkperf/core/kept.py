"""Results as plain values and back, so that a run that was broken off does not measure again what it has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.gate import GateSpec
from pytest_sparkperf.core.order import Arm
from pytest_sparkperf.core.report import worst
from pytest_sparkperf.core.result import FlagCount, RequestResult, Result, Verdict
from pytest_sparkperf.core.variant import Variant

KEPT = "not measured in this run: kept from the one before by --sparkperf-resume"
# What a model was asked and what it said stays with the run that asked.
_KIND = "is"
_KINDS = (Result, RequestResult, Verdict, FlagCount)
_BY_NAME = {kind.__name__: kind for kind in _KINDS}
_NOT_KEPT = frozenset({"text", "reasoning", "tool_calls", "token_ids", "error"})


def gate_digest(test: str, spec: GateSpec, variants: Mapping[Arm, Variant], gates: int) -> str:
    """Return 32 hexadecimal digits, equal for the same gate of a test on the same servers as described."""
    described = [test, str(gates), repr(spec), repr(sorted(spec.env.items()))]
    for arm, variant in sorted(variants.items()):
        described += [arm, repr(variant), repr(sorted(variant.env.items()))]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:32]


def is_worth_keeping(result: Result) -> bool:
    """Tell whether something was measured: any verdict on it stands, however often the run is started."""
    return result.rounds > 0 and worst(result.verdicts) != "ERROR"


def result_document(result: Result) -> dict[str, Any]:
    """Return a result as values that JSON can hold; what requests were asked and answered is left out."""
    document = _plain(result)
    assert isinstance(document, dict)
    return document


def result_from(document: Mapping[str, Any], where: str) -> Result:
    """Return the result that plain values stand for; raises ConfigError, naming ``where`` they are from."""
    try:
        result = _restored(document)
    except (TypeError, KeyError) as error:
        raise ConfigError(_foreign(where, str(error))) from None
    if not isinstance(result, Result):
        raise ConfigError(_foreign(where, "no result"))
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, _KINDS):
        names = [field.name for field in fields(value) if field.name not in _NOT_KEPT]
        return {_KIND: type(value).__name__} | {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no plain form yet")


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        given = {name: _restored(one) for name, one in value.items() if name != _KIND}
        return _BY_NAME[value[_KIND]](**given) if _KIND in value else MappingProxyType(given)
    return tuple(_restored(one) for one in value) if isinstance(value, list) else value


def _foreign(where: str, why: str) -> str:
    text = f"{where} holds no result as this version keeps it ({why})"
    return f"{text}; remove the file to measure everything anew"
