"""Which values are secret, and texts without them; the standard library only, for the supervisor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
# Shorter values are words like "1" or "auto", and hiding them would tear holes into every text.
_SHORTEST = 6
_PUBLIC = re.compile(r"(?:true|false|auto|none|\d+)", re.IGNORECASE)


# Where servers and shells print secrets that nobody told us of: options, settings as Python or JSON shows
# them (a list, a text; not None), variables, the header.
_OPTION, _SETTING = "(?:api-key|hf-token)", "(?:api[_-]key|hf[_-]token)"
_SHOWN = r"""(?:\[[^\]]*\]|'[^']*'|"[^"]*")"""
_PLACES = tuple(
    re.compile(rf"(?P<place>{before}){value}")
    for before, value in (
        (rf"""--{_OPTION}(?:[= ]|', '|", ")""", r"""(?!\*)[^\s'",]+"""),
        (rf"""['"]{_SETTING}['"]: ?""", _SHOWN),
        (rf"\b{_SETTING}=", _SHOWN),
        (r"\b[A-Z][A-Z0-9_]*_(?:TOKEN|KEY|SECRET|PASSWORD)=", r"""[^\s'"]+"""),
        (r"\bBearer ", r"""[^\s'"]+"""),
    )
)


def is_secret_name(name: str) -> bool:
    """Say whether a variable of this name holds a secret: ``HF_TOKEN``, ``VLLM_API_KEY``."""
    return bool(_SECRET_NAME.search(name))


def secret_values(env: Mapping[str, str], also: Iterable[str | None] = ()) -> tuple[str, ...]:
    """Return the secret values of an environment, longest first, and those of ``also``."""
    named = [value for name, value in env.items() if is_secret_name(name)]
    found = {value for value in (*named, *also) if value and len(value) >= _SHORTEST}
    return tuple(sorted((one for one in found if not _PUBLIC.fullmatch(one)), key=len, reverse=True))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with every secret hidden: the known ones, and what stands where secrets do."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    for place in _PLACES:
        text = place.sub(rf"\g<place>{HIDDEN}", text)
    return text
