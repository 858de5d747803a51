"""One request of an equivalence run: what is sent to both servers, and what its answer is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sparkperf.core.frozen import FrozenMap, thaw
from pytest_sparkperf.core.load import Endpoint
from pytest_sparkperf.core.own_files import OwnFiles
from pytest_sparkperf.core.prompts import shipped_prompts
from pytest_sparkperf.core.workload import GREEDY

# Enough to see the other server's token among the best; vLLM allows 20 unless told otherwise.
CANDIDATES = 5
OUTPUT_TOKENS = 512
THINKING_TOKENS = 1024
PROMPTS = 12


@dataclass(frozen=True, slots=True)
class Question:
    """One request; ``fields`` are the API's own (messages or prompt, tools, response_format, ...).

    Its answer ends where the model ends it. ``calls`` demands a tool call, ``schema`` and ``pattern`` say
    what the content must be.
    """

    name: str
    fields: FrozenMap
    endpoint: Endpoint = "chat"
    max_tokens: int = OUTPUT_TOKENS
    thinking: bool = False
    calls: bool = False
    schema: FrozenMap | None = None
    pattern: str | None = None

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The tools that the request offers."""
        return list(thaw(self.fields.get("tools", ())))

    def body(self, model: str, *, salt: str | None = None, candidates: bool = False) -> dict[str, Any]:
        """Build the request's body at temperature 0, but for the fields that make it a stream.

        ``salt`` keeps prefix caches apart; ``candidates`` asks for the best candidates of each token.
        """
        body: dict[str, Any] = {"model": model, "max_tokens": self.max_tokens, **GREEDY}
        if self.endpoint == "chat":
            body["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        if salt is not None:
            body["cache_salt"] = salt
        if candidates and self.endpoint == "chat":
            body |= {"logprobs": True, "top_logprobs": CANDIDATES}
        elif candidates:
            body["logprobs"] = CANDIDATES
        return {**body, **thaw(self.fields)}


def plain_questions(
    *, count: int = PROMPTS, max_tokens: int | None = None, thinking: bool = False
) -> tuple[Question, ...]:
    """Return shipped prompts as questions, an even mix of code, chat, JSON and prose.

    Answers may have 512 tokens, 1,024 with thinking, unless ``max_tokens`` says otherwise: a short probe
    proves little, since outputs often part after some hundred tokens.
    """
    most = max_tokens or (THINKING_TOKENS if thinking else OUTPUT_TOKENS)
    return tuple(
        Question(prompt.name, user_message(prompt.text), max_tokens=most, thinking=thinking)
        for prompt in shipped_prompts(count)[:count]
    )


def user_message(text: str, **fields: Any) -> FrozenMap:
    """Return the fields of a chat request with one message of the user."""
    return FrozenMap({"messages": [{"role": "user", "content": text}], **fields})


def own_questions(files: OwnFiles, *, max_tokens: int = OUTPUT_TOKENS) -> tuple[Question, ...]:
    """Return the user's own conversations as questions, each with the user's tools."""
    return tuple(
        Question(f"messages-{at}", fields, max_tokens=max_tokens) for at, fields in enumerate(files.requests)
    )
