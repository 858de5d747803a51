"""Reads files that are named on the command line."""

from __future__ import annotations

from pathlib import Path

from pytest_sparkperf.core.errors import ConfigError

# A detailed result of 10,000 requests has some 60 MiB.
_LARGEST_RESULT_MIB = 256


def result_text(path: Path) -> str:
    """Return the text of a result file; raises ConfigError where it cannot be read."""
    try:
        if path.stat().st_size > _LARGEST_RESULT_MIB * 1024**2:
            raise ConfigError(
                f"{path}: is larger than {_LARGEST_RESULT_MIB} MiB; give a result without the details of "
                "each request"
            )
        return path.read_text("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: cannot be read: {reason}; name a readable file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8; give the file as the tool wrote it") from error
