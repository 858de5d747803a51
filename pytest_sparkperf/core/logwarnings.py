"""Finds what a server says it does not do as asked: unknown variables, deprecated options, ignored fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pytest_sparkperf.core.logline import last_start, log_lines

_UNKNOWN = re.compile(r"Unknown vLLM environment variable detected: (?P<name>\w+)")
_IGNORED = re.compile(
    r"^(?P<name>.*?)(?: parameters?)? (?:won't|will not|do(?:es)? not) work with speculative"
)
_DEPRECATED = re.compile(r"\bdeprecated\b")
_SEPARATOR = re.compile(r",? and |, ")


def log_warnings(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the warnings of the last start in a log, each once; a kind of which there is none is absent.

    ``unknown_variables`` are environment variables that this vLLM does not know, ``deprecated`` its own words
    on options that will go, ``ignored_with_drafts`` the request fields that do nothing while it speculates.
    """
    found: dict[str, dict[str, None]] = {"unknown_variables": {}, "deprecated": {}, "ignored_with_drafts": {}}
    for line in last_start(list(log_lines(text))):
        if line.level != "WARNING":
            continue
        if match := _UNKNOWN.search(line.body):
            found["unknown_variables"][match["name"]] = None
        elif match := _IGNORED.match(line.body):
            found["ignored_with_drafts"].update(dict.fromkeys(_SEPARATOR.split(match["name"])))
        elif _DEPRECATED.search(line.body):
            found["deprecated"][line.body] = None
    return MappingProxyType({kind: tuple(texts) for kind, texts in found.items() if texts})
