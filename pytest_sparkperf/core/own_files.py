"""The user's own conversations and tools, as the JSON of their files holds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.kinds import shortened
from pytest_sparkperf.core.prompts import Prompt


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Conversations to send as they are, images too, and tools to offer with each; both may be empty."""

    conversations: tuple[tuple[FrozenMap, ...], ...] = ()
    tools: tuple[FrozenMap, ...] = ()

    @property
    def requests(self) -> tuple[FrozenMap, ...]:
        """The request fields of each conversation."""
        return tuple(
            FrozenMap({"messages": one, **({"tools": self.tools} if self.tools else {})})
            for one in self.conversations
        )


NO_FILES = OwnFiles()


def parse_messages(text: str, name: str) -> tuple[tuple[FrozenMap, ...], ...]:
    """Read a conversation or a list of them; raises ConfigError for another shape, ``name`` first."""
    found = _decode(text, name)
    conversations = found if _is_list(found, list) else [found]
    for at, one in enumerate(conversations):
        if not one or not _is_list(one, dict):
            raise ConfigError(
                f"{name}: conversation {at} is {shortened(json.dumps(one))}; give a list of messages such as "
                '[{"role": "user", "content": "..."}], or a list of such lists'
            )
    return tuple(tuple(FrozenMap(message) for message in one) for one in conversations)


def parse_tools(text: str, name: str) -> tuple[FrozenMap, ...]:
    """Read a list of tools; raises ConfigError for another shape, ``name`` first."""
    found = _decode(text, name)
    if not found or not _is_list(found, dict):
        raise ConfigError(
            f"{name}: {shortened(json.dumps(found))} is no list of tools; give the list that goes into a "
            'request, such as [{"type": "function", "function": {"name": "...", "parameters": {}}}]'
        )
    return tuple(map(FrozenMap, found))


def own_prompts(files: OwnFiles, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Return as many prompts of the user's own in place of others: conversations in turn, tools with each."""
    if files.conversations:
        own = files.requests
        return tuple(
            Prompt(f"messages-{at % len(own)}", "", fields=own[at % len(own)]) for at in range(len(prompts))
        )
    if not files.tools:
        return tuple(prompts)
    return tuple(replace(one, fields=FrozenMap({"tools": files.tools})) for one in prompts)


def _decode(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{name}:{error.lineno}: this is not JSON ({error.msg}); write it as JSON"
        ) from None


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
