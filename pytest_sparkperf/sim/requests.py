"""From a request's JSON body to what the engine and the answer need, or the refusal vLLM would send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pytest_sparkperf.sim.answer import Answer
from pytest_sparkperf.sim.body import (
    Body,
    RequestError,
    flag_field,
    integer_field,
    text_field,
    type_error,
    unsupported,
)
from pytest_sparkperf.sim.prompt import chat_prompt, completion_prompt, wants_thinking
from pytest_sparkperf.sim.structured import document
from pytest_sparkperf.sim.tokenizer import split_pieces, tokenize
from pytest_sparkperf.sim.toolchoice import tool_calls
from pytest_sparkperf.sim.twist import STRAIGHT, Twist
from pytest_sparkperf.sim.words import prompt_digest

Endpoint = Literal["chat", "completions"]
_MOST_LOGPROBS = 20  # vLLM's --max-logprobs


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a request wants to see in its answer besides the text."""

    stream: bool
    include_usage: bool
    continuous_usage: bool
    token_ids: bool
    logprobs: int | None = None  # how many candidates per token; None: no log-probabilities


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
    automatic_tools: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What decides whether an answer is bent: the prompt, its salt, and whether its end is ignored."""

    prompt_ids: tuple[int, ...]
    cache_salt: str
    ignore_eos: bool


def parse_generation(
    body: Body,
    endpoint: Endpoint,
    limits: Limits,
    *,
    nonce: str,
    twist: Callable[[Asked], Twist] = lambda _: STRAIGHT,
) -> Generation:
    """Check a body and return what to generate.

    ``nonce`` makes the text of a sampled request (temperature above 0, no ``seed``) its own; ``twist`` says
    how a fault bends the answer.
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
    options = _stream_options(body, endpoint)
    asked = Asked(prompt_ids, text_field(body, "cache_salt", ""), flag_field(body, "ignore_eos"))
    answer, called = _answer(body, endpoint, limits, digest, twist(asked), min_tokens)
    ends = answer.natural_tokens <= max_tokens and not asked.ignore_eos
    # vLLM ends a call that was named with stop, any other with tool_calls.
    natural = "tool_calls" if called and not isinstance(body.get("tool_choice"), dict) else "stop"
    return Generation(
        endpoint=endpoint,
        model=model,
        prompt_ids=prompt_ids,
        digest=digest,
        answer=answer,
        output_tokens=answer.natural_tokens if ends else max_tokens,
        finish_reason=natural if ends else "length",
        cache_salt=asked.cache_salt,
        options=options,
    )


def _answer(
    body: Body, endpoint: Endpoint, limits: Limits, digest: bytes, twist: Twist, min_tokens: int
) -> tuple[Answer, bool]:
    """Return the answer to a checked request, and whether the client is to see tool calls in it."""
    calls = (
        tool_calls(body, digest, automatic=limits.automatic_tools, altered_argument=twist.altered_argument)
        if endpoint == "chat"
        else ()
    )
    thinking = endpoint == "chat" and wants_thinking(body)
    written = None if calls else document(body, digest)
    answer = Answer(
        digest, thinking=thinking, calls=calls, document=written, min_tokens=min_tokens, twist=twist
    )
    return answer, bool(calls) and not twist.leak


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


def parse_tokenize(body: Body) -> tuple[int, ...]:
    """Return the token ids that ``POST /tokenize`` asks for."""
    if "prompt" in body:
        return tokenize(text_field(body, "prompt", ""))
    return chat_prompt(body)


def token_texts(body: Body) -> list[str] | None:
    """Return the tokens of a plain prompt as byte-level tokenizers write them, where that was asked for."""
    if "prompt" not in body or not body.get("return_token_strs"):
        return None
    return [piece.replace(" ", "\u0120") for piece in split_pieces(text_field(body, "prompt", ""))]


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
    for name in ("stop", "stop_token_ids", "echo", "use_beam_search", "prompt_logprobs"):
        if body.get(name):
            raise unsupported(name, body[name], f"Leave {name} out.")


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


def _sampling_nonce(body: Body, nonce: str) -> str:
    # A server takes the temperature of the model's generation_config.json when a request names none, which is
    # above 0 for this model: such a request is sampled.
    if body.get("temperature") == 0:
        return ""
    seed = body.get("seed")
    return f"seed {seed}" if seed is not None else nonce


def _stream_options(body: Body, endpoint: Endpoint) -> StreamOptions:
    options = body.get("stream_options")
    asked = options if isinstance(options, dict) else {}
    include = asked.get("include_usage") is True
    return StreamOptions(
        stream=flag_field(body, "stream"),
        include_usage=include,
        continuous_usage=include and asked.get("continuous_usage_stats") is True,
        token_ids=flag_field(body, "return_token_ids"),
        logprobs=_logprobs(body, endpoint),
    )


def _logprobs(body: Body, endpoint: Endpoint) -> int | None:
    """Return how many candidates per token a request wants told; None where it wants no log-probabilities."""
    if endpoint == "completions":
        count = None if body.get("logprobs") is None else integer_field(body, "logprobs", 0)
    else:
        wanted, count = flag_field(body, "logprobs"), integer_field(body, "top_logprobs", 0)
        if count and not wanted:
            raise RequestError("when using `top_logprobs`, `logprobs` must be set to true.")
        count = count if wanted else None
    if count is not None and not 0 <= count <= _MOST_LOGPROBS:
        raise RequestError(
            f"Requested sample logprobs of {count}, which is greater than max allowed: {_MOST_LOGPROBS} "
            f"(parameter=logprobs, value={count})",
            param="logprobs",
        )
    return count
