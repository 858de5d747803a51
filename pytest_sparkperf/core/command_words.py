"""The words of a command that the user wrote, filled in for one start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from pytest_sparkperf.core.frozen import compact_json
from pytest_sparkperf.core.variant import Variant, serve_options
from pytest_sparkperf.core.vllm_options import SPECULATIVE, arguments

_PLACEHOLDER = re.compile(r"\{(port|host|k|model|speculative_config|args|nonce)\}")
_ARGS = "{args}"


def fill(
    words: Sequence[str], variant: Variant, *, port: int | str, host: str, nonce: str
) -> tuple[str, ...]:
    """Return the words with their placeholders filled in.

    A word that is ``{args}`` alone becomes as many words as there are options; within a word they are quoted
    for a shell. ``{speculative_config}`` is JSON, and a word that is nothing but an option for it is left out
    where nothing speculates.
    """
    options = tuple(
        arguments({name: one for name, one in serve_options(variant).items() if name != SPECULATIVE})
    )
    values = {
        "port": str(port),
        "host": host,
        "nonce": nonce,
        "k": str(variant.k or 0),
        "model": variant.model or "",
        "speculative_config": compact_json(variant.speculative) if variant.speculative else "",
        "args": shlex.join(options),
    }
    filled: list[str] = []
    for word in _without_empty_speculation(words, speculates=bool(variant.speculative)):
        if word == _ARGS:
            filled += options
        else:
            filled.append(_PLACEHOLDER.sub(lambda match: values[match[1]], word))
    return tuple(filled)


def _without_empty_speculation(words: Sequence[str], *, speculates: bool) -> Iterator[str]:
    for at, word in enumerate(words):
        following = words[at + 1 : at + 2]
        for_config = word.startswith("-") and list(following) == ["{speculative_config}"]
        if speculates or not (for_config or "{speculative_config}" in word):
            yield word
