"""Validates values against a JSON schema with the library jsonschema, which comes with the extra ``mtp``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import thaw

_MISSING = (
    "tool arguments and structured answers are validated against their JSON schema, which needs the package "
    "jsonschema; install it: pip install 'pytest-sparkperf[mtp]'"
)
# More tell nothing new.
_MOST_FAULTS = 3


def schema_check(
    load: Callable[[str], Any] = importlib.import_module,
) -> Callable[[Any, Mapping[str, Any]], tuple[str, ...]]:
    """Return a check that gives the faults of a value by a schema, at most three, each with its path.

    The draft is the one that ``$schema`` names, else the newest. Raises ConfigError where the library is not
    installed; the check raises it for a schema that is not valid itself.
    """
    try:
        jsonschema = load("jsonschema")
    except ImportError as error:
        raise ConfigError(_MISSING) from error

    def check(value: Any, schema: Mapping[str, Any]) -> tuple[str, ...]:
        schema = thaw(schema)  # the library knows plain dicts and lists only
        validator = jsonschema.validators.validator_for(schema)
        try:
            validator.check_schema(schema)
        except jsonschema.exceptions.SchemaError as error:
            raise ConfigError(
                f"a JSON schema is not valid at {error.json_path}: {error.message}; correct the schema of "
                "the tool or of the response format"
            ) from error
        faults = sorted(validator(schema).iter_errors(value), key=lambda fault: fault.json_path)
        return tuple(f"{fault.json_path}: {fault.message}" for fault in faults[:_MOST_FAULTS])

    return check
