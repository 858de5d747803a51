"""Reads the files that a load names as its messages and tools."""

from __future__ import annotations

from pathlib import Path

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.own_files import NO_FILES, OwnFiles, parse_messages, parse_tools


def read_own_files(load: Load) -> OwnFiles:
    """Return what the files of a load hold; raises ConfigError for one that cannot be used."""
    if load.messages is None and load.tools is None:
        return NO_FILES
    return OwnFiles(
        () if load.messages is None else parse_messages(_text("messages", load.messages), load.messages),
        () if load.tools is None else parse_tools(_text("tools", load.tools), load.tools),
    )


def _text(word: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"{word}: {path!r} cannot be read ({reason}); name a JSON file by its path from the test's folder"
        ) from None
