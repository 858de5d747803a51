"""From a request's JSON body to what the engine and the answer need, or the refusal vLLM would send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.sim.answer import Answer, ToolCall, invent_arguments, prompt_digest
from pytest_sparkperf.sim.body import (
    Body,
    RequestError,
    flag_field,
    integer_field,
    text_field,
    type_error,
    unsupported,
)
from pytest_sparkperf.sim.prompt import chat_prompt, completion_prompt, tool_functions, wants_thinking
from pytest_sparkperf.sim.tokenizer import tokenize

Endpoint = Literal["chat", "completions"]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a request wants to see in its answer besides the text."""

    stream: bool
    include_usage: bool
    continuous_usage: bool
    token_ids: bool


@dataclass(frozen=True, slots=True)
class Generation:
    """One request, checked: its prompt as tokens, the answer it will get and where that stops."""

    endpoint: Endpoint
    model: str
    prompt_ids: tuple[int, ...]
    digest: bytes
    answer: Answer
    output_tokens: int
    finish_reason: str
    cache_salt: str
    options: StreamOptions


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server was started with, as far as a request can run against it."""

    served_names: tuple[str, ...]
    max_model_len: int


def parse_generation(body: Body, endpoint: Endpoint, limits: Limits, *, nonce: str) -> Generation:
    """Check a body and return what to generate.

    ``nonce`` makes the text of a sampled request (temperature above 0, no ``seed``) its own.
    """
    _refuse_unsupported(body)
    model = check_model(body, limits)
    prompt_ids = chat_prompt(body) if endpoint == "chat" else completion_prompt(body)
    max_tokens = _output_limit(body, len(prompt_ids), limits.max_model_len)
    min_tokens = integer_field(body, "min_tokens", 0)
    if min_tokens > max_tokens:
        raise RequestError(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
        )
    digest = prompt_digest(prompt_ids, _sampling_nonce(body, nonce))
    tool = _forced_tool(body, digest) if endpoint == "chat" else None
    thinking = endpoint == "chat" and wants_thinking(body)
    answer = Answer(digest, thinking=thinking, tool=tool, min_tokens=min_tokens)
    ends = answer.natural_tokens <= max_tokens and not flag_field(body, "ignore_eos")
    # vLLM ends a call that a choice of "required" forced with tool_calls, one that was named with stop.
    natural = "tool_calls" if tool and body.get("tool_choice") == "required" else "stop"
    return Generation(
        endpoint=endpoint,
        model=model,
        prompt_ids=prompt_ids,
        digest=digest,
        answer=answer,
        output_tokens=answer.natural_tokens if ends else max_tokens,
        finish_reason=natural if ends else "length",
        cache_salt=text_field(body, "cache_salt", ""),
        options=_stream_options(body),
    )


def check_model(body: Body, limits: Limits) -> str:
    """Return the name a request asks for; without one the server's first name."""
    model = text_field(body, "model", limits.served_names[0])
    if model not in limits.served_names:
        aliases = ", ".join(limits.served_names)
        raise RequestError(
            f"The model `{model}` does not exist. Valid aliases: {aliases}.",
            status=404,
            kind="NotFoundError",
            param="model",
        )
    return model


def parse_tokenize(body: Body) -> list[int]:
    """Return the token ids that ``POST /tokenize`` asks for."""
    if "prompt" in body:
        return tokenize(text_field(body, "prompt", ""))
    return list(chat_prompt(body))


def _refuse_unsupported(body: Body) -> None:
    """Refuse what would change the text or the shape of the answer and is not simulated."""
    temperature = body.get("temperature")
    if isinstance(temperature, (int, float)) and temperature < 0:
        raise RequestError(
            f"temperature must be non-negative, got {float(temperature)}. "
            f"(parameter=temperature, value={float(temperature)})",
            param="temperature",
        )
    numeric = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    if temperature is not None and not numeric:
        raise type_error("temperature", "a valid number", temperature, kind="float_type")
    if body.get("n") not in (None, 1):
        raise unsupported("n", body["n"], "Send n=1.")
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        if body.get(name) not in (None, False) and (name != "top_logprobs" or body[name] != 0):
            raise unsupported(name, body[name], f"Leave {name} out.")
    for name in ("stop", "stop_token_ids", "response_format", "echo", "use_beam_search", "guided_json"):
        value = body.get(name)
        if value and value != {"type": "text"}:
            raise unsupported(name, value, f"Leave {name} out.")


def _output_limit(body: Body, prompt_tokens: int, max_model_len: int) -> int:
    """Return the most tokens to generate, after vLLM's checks against the model's context."""
    asked = body.get("max_completion_tokens", body.get("max_tokens"))
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int)):
        raise type_error("max_tokens", "a valid integer", asked, kind="int_type")
    if asked is not None and asked < 1:
        raise RequestError(
            f"max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})",
            param="max_tokens",
        )
    if asked is not None and asked > max_model_len:
        raise RequestError(
            f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={asked})",
            param="max_tokens",
        )
    if prompt_tokens + (asked or 1) > max_model_len:
        raise _context_exceeded(prompt_tokens, asked, max_model_len)
    return asked or max_model_len - prompt_tokens


def _context_exceeded(prompt_tokens: int, asked: int | None, max_model_len: int) -> RequestError:
    limit = f"This model's maximum context length is {max_model_len} tokens. However, "
    if prompt_tokens >= max_model_len:
        text = (
            f"your prompt contains at least {prompt_tokens} input tokens, which exceeds this limit even "
            "without any output tokens. Please reduce the length of the input prompt. "
        )
    else:
        text = (
            f"you requested {asked} output tokens and your prompt contains {prompt_tokens} input tokens. "
            f"Please reduce the length of the input prompt or the number of requested output tokens. "
        )
    value = f"(parameter=input_tokens, value={prompt_tokens})"
    return RequestError(limit + text + value, param="input_tokens")


def _forced_tool(body: Body, digest: bytes) -> ToolCall | None:
    """Return the call that ``tool_choice`` forces; left to itself the simulated model answers in text."""
    choice = body.get("tool_choice")
    if choice in (None, "auto", "none"):
        return None
    functions = tool_functions(body)
    if isinstance(choice, dict):
        wanted = choice.get("function")
        name = wanted.get("name") if isinstance(wanted, dict) else None
        functions = [function for function in functions if function.get("name") == name]
    elif choice != "required":
        valid = "'none', 'auto', 'required' or a named function"
        raise type_error("tool_choice", valid, choice, kind="literal_error")
    if not functions:
        raise RequestError("When using `tool_choice`, `tools` must be set and hold the named function.")
    schema = functions[0].get("parameters")
    arguments = invent_arguments(digest, schema if isinstance(schema, Mapping) else {})
    return ToolCall(str(functions[0].get("name")), arguments)


def _sampling_nonce(body: Body, nonce: str) -> str:
    # A server takes the temperature of the model's generation_config.json when a request names none, which is
    # above 0 for this model: such a request is sampled.
    if body.get("temperature") == 0:
        return ""
    seed = body.get("seed")
    return f"seed {seed}" if seed is not None else nonce


def _stream_options(body: Body) -> StreamOptions:
    options = body.get("stream_options")
    asked = options if isinstance(options, dict) else {}
    include = asked.get("include_usage") is True
    return StreamOptions(
        stream=flag_field(body, "stream"),
        include_usage=include,
        continuous_usage=include and asked.get("continuous_usage_stats") is True,
        token_ids=flag_field(body, "return_token_ids"),
    )
