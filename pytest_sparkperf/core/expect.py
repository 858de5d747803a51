"""Server facts that a gate expects: compared before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_sparkperf.core.kinds import did_you_mean, is_number

# Facts that are one figure per engine; the smallest is the same from start to start.
_SMALLEST = ("kv_cache_tokens", "max_concurrency")


def expectation_faults(expected: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence per fact that is not as expected.

    A value is expected as it is, text without regard to case; ``(figure, share)`` allows that share either
    way; None expects that the server says nothing. A fact that the server does not tell is a fault: what was
    not checked is not as expected.
    """
    for name, wanted in expected.items():
        seen = _figure(name, facts.get(name))
        if _agrees(wanted, seen):
            continue
        if seen is None:
            near, told = did_you_mean(name, facts) or ";", ", ".join(sorted(facts)) or "nothing"
            yield f"{name}: expected {_shown(wanted)}, but the server does not tell it{near} it tells {told}"
        else:
            yield f"{name}: expected {_shown(wanted)}, but the server has {seen!r}"


def expectation_form_faults(expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the expectations as written, before any server is there."""
    for name, wanted in expected.items():
        if isinstance(wanted, list | tuple) and not _is_band(wanted):
            yield (
                f"expect[{name!r}]={wanted!r} is neither a value nor a figure with the share it may be off "
                "by; write (343_699, 0.02)"
            )


def _figure(name: str, value: Any) -> Any:
    if name in _SMALLEST and isinstance(value, list | tuple):
        return min(value, default=None)
    return value


def _agrees(wanted: Any, seen: Any) -> bool:
    if isinstance(wanted, list | tuple) and _is_band(wanted):
        figure, share = wanted
        return is_number(seen) and abs(seen - figure) <= share * abs(figure)
    if isinstance(wanted, str) and isinstance(seen, str):
        return wanted.casefold() == seen.casefold()
    return bool(wanted == seen) and isinstance(wanted, bool) == isinstance(seen, bool)


def _is_band(value: list[Any] | tuple[Any, ...]) -> bool:
    return len(value) == 2 and all(map(is_number, value)) and 0 <= value[1] < 1


def _shown(wanted: Any) -> str:
    if isinstance(wanted, list | tuple):
        return f"{wanted[0]:,} within {wanted[1]:.3g}"
    return repr(wanted)
