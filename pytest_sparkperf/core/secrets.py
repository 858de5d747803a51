"""Which values are secret, and texts without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
# Shorter values are words like "1" or "auto", and hiding them would tear holes into every text.
_SHORTEST = 6
_PUBLIC = re.compile(r"(?:true|false|auto|none|\d+)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Say whether a variable of this name holds a secret: ``HF_TOKEN``, ``VLLM_API_KEY``."""
    return bool(_SECRET_NAME.search(name))


def secret_values(env: Mapping[str, str], also: Iterable[str | None] = ()) -> tuple[str, ...]:
    """Return the secret values of an environment, longest first, and those of ``also``."""
    named = [value for name, value in env.items() if is_secret_name(name)]
    found = {value for value in (*named, *also) if value and len(value) >= _SHORTEST}
    return tuple(sorted((one for one in found if not _PUBLIC.fullmatch(one)), key=len, reverse=True))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with every secret hidden."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
