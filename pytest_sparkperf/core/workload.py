"""What a load sends: request bodies, prompts fitted to a token count, and a digest of it all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.load import MADE_DATASETS, Load
from pytest_sparkperf.core.prompts import Prompt

# A model's generation_config.json changes the server's defaults of just these, so each is sent.
# top_k -1 is "off" for every vLLM; 0 is refused by old ones.
GREEDY: Mapping[str, float] = MappingProxyType(
    {
        "temperature": 0,
        "top_p": 1,
        "top_k": -1,
        "min_p": 0,
        "repetition_penalty": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
    }
)
# Fields that say which request this is or how its answer is read; they are set by what a load names.
RESERVED_FIELDS = ("model", "messages", "prompt", "n", "stream", "stream_options")
# Fields from which a server makes the prompt's tokens; its tokenizer takes them under the same names.
_PROMPT_FIELDS = (
    *("model", "messages", "prompt", "tools", "chat_template", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message", "add_special_tokens"),
)
# What a digest holds of a load only where it is not the default, so that digests of old records stay.
_ADDED_FIELDS = (
    *("seed", "prompt_tokens", "depth", "own_lengths"),
    *("requests", "request_rate", "burstiness", "capped", "slo"),
)


def request_body(load: Load, prompt: Prompt, *, model: str, salt: str | None) -> dict[str, Any]:
    """Build the JSON body of one request, but for the fields that make it a stream.

    ``salt`` keeps the server's prefix cache cold without touching the text; None leaves the cache alone. The
    load's ``body`` wins over every field but the reserved ones, which raise ConfigError.
    """
    _refuse_reserved(load.body)
    body: dict[str, Any] = {"model": model, "max_tokens": output_tokens(load, prompt)}
    body["ignore_eos"] = load.ignore_eos
    turns = (*prompt.history, ("user", prompt.text))
    if load.endpoint == "chat":
        system = () if load.system_prompt is None else (("system", load.system_prompt),)
        body["messages"] = [{"role": role, "content": text} for role, text in (*system, *turns)]
        body["chat_template_kwargs"] = {"enable_thinking": load.thinking}
    else:
        body["prompt"] = "\n\n".join(text for _, text in turns)
    body |= thaw(prompt.fields) | _sampling_fields(load)
    if salt is not None:
        body["cache_salt"] = salt
    extra = thaw(load.body)
    if isinstance(extra.get("chat_template_kwargs"), dict):
        extra["chat_template_kwargs"] = body.get("chat_template_kwargs", {}) | extra["chat_template_kwargs"]
    body |= extra
    return body


def output_tokens(load: Load, prompt: Prompt) -> int:
    """Return how many tokens are asked for with a prompt."""
    return (prompt.output_tokens if load.own_lengths else None) or load.output_tokens


def token_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a request's body decides which tokens its prompt has."""
    return {name: body[name] for name in _PROMPT_FIELDS if name in body}


def _refuse_reserved(body: Mapping[str, Any]) -> None:
    wrong = [name for name in RESERVED_FIELDS if name in body]
    if wrong:
        raise ConfigError(
            f"body sets {', '.join(wrong)}; a load sets {', '.join(RESERVED_FIELDS)} itself: remove it from "
            "body, and use the keywords model and endpoint to choose these"
        )


def _sampling_fields(load: Load) -> dict[str, Any]:
    if load.sampling == "greedy":
        return dict(GREEDY)
    return {} if load.sampling == "server" else dict(thaw(load.sampling))


def salted(prompt: Prompt, salt: str) -> Prompt:
    """Put a salt in front of a prompt's text, for servers that ignore the field ``cache_salt``."""
    return replace(prompt, text=f"{salt}\n\n{prompt.text}")


def trimmed(prompt: Prompt, keep_words: int) -> Prompt:
    """Keep the first words of a prompt, with the white space between them."""
    return replace(prompt, text="".join(_words(prompt.text)[:keep_words]))


def fit_prompts(
    prompts: Sequence[Prompt],
    prompt_tokens: int,
    count_tokens: Callable[[str], int],
    material: Sequence[Prompt],
) -> tuple[Prompt, ...]:
    """Fit each prompt to a token count by :func:`fit_prompt`, too short ones continued by different texts."""
    fitted = []
    for index, prompt in enumerate(prompts):
        turn = (index + 1) % len(material)
        fitted.append(fit_prompt(prompt, prompt_tokens, count_tokens, (*material[turn:], *material[:turn])))
    return tuple(fitted)


def fit_prompt(
    prompt: Prompt, prompt_tokens: int, count_tokens: Callable[[str], int], material: Sequence[Prompt]
) -> Prompt:
    """Return the longest beginning of a prompt that has at most ``prompt_tokens`` tokens.

    A prompt that is too short is first continued with the texts of ``material``, over and over.
    ``count_tokens`` counts a text as the server does, chat template included. Bisection over words: about 10
    counts for 1,000 tokens, 17 for 100,000. Raises ConfigError where not even one word fits.
    """
    words = _words(_extended(prompt, prompt_tokens, count_tokens, material))
    fits, too_many = 0, len(words) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if count_tokens("".join(words[:middle])) <= prompt_tokens:
            fits = middle
        else:
            too_many = middle
    if fits == 0:
        least = count_tokens(words[0])
        raise ConfigError(
            f"prompt_tokens is {prompt_tokens!r}, but one word and the chat template are {least} tokens: set "
            f"prompt_tokens to {least} or more"
        )
    return replace(prompt, text="".join(words[:fits]))


def _extended(
    prompt: Prompt, prompt_tokens: int, count_tokens: Callable[[str], int], material: Sequence[Prompt]
) -> str:
    text = prompt.text
    more = _over_and_over(material)
    have = count_tokens(text)
    while have < prompt_tokens:
        # As many texts at once as are missing by the rate so far: a count of a long text is slow.
        wanted_chars = len(text) * prompt_tokens / max(have, 1)
        while len(text) <= wanted_chars:
            text += "\n\n" + next(more)
        have = count_tokens(text)
    return text


def _over_and_over(material: Sequence[Prompt]) -> Iterator[str]:
    while True:
        for prompt in material:
            yield prompt.text


def _words(text: str) -> list[str]:
    """Split into words, each with the white space before it, so that joining them gives the text again."""
    words: list[str] = []
    start = 0
    for word in text.split():
        end = text.index(word, start) + len(word)
        words.append(text[start:end])
        start = end
    return words


def workload_digest(load: Load, prompts: Sequence[Prompt]) -> str:
    """Return 16 hexadecimal digits, equal for loads that send the same work in the same way.

    ``prompts`` are those that the work is made from, before they are fitted to a server's tokenizer.
    """
    sent: dict[str, Any] = {
        "bodies": [request_body(load, prompt, model="", salt=None) for prompt in prompts],
        "endpoint": load.endpoint,
        "concurrency": load.concurrency,
        "prefix_cache": load.prefix_cache,
    }
    plain = Load()
    for name in _ADDED_FIELDS:
        if (value := getattr(load, name)) != getattr(plain, name):
            sent[name] = thaw(value)
    if load.dataset in MADE_DATASETS:  # a file is what it holds, wherever it lies
        sent["dataset"] = load.dataset
    canonical = json.dumps(sent, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
