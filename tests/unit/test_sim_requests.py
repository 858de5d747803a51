from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_sparkperf.sim.body import RequestError, decode_body
from pytest_sparkperf.sim.requests import (
    Endpoint,
    Generation,
    Limits,
    check_model,
    parse_generation,
    parse_tokenize,
)
from pytest_sparkperf.sim.tokenizer import tokenize

LIMITS = Limits(("tiny", "small"), max_model_len=2048)
MESSAGES = [{"role": "user", "content": "Tell me about integers."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}


def parse(endpoint: Endpoint = "chat", nonce: str = "request 1", **body: Any) -> Generation:
    base: dict[str, Any] = {"temperature": 0}
    base |= {"messages": MESSAGES} if endpoint == "chat" else {"prompt": "Floating point"}
    return parse_generation(base | body, endpoint, LIMITS, nonce=nonce)


def text(generation: Generation, count: int = 40) -> str:
    return "".join(generation.answer.piece(position).text for position in range(count))


def test_a_chat_prompt_is_its_messages_in_the_template() -> None:
    expected = "<|im_start|>user\nTell me about integers.<|im_end|>\n<|im_start|>assistant\n<think>\n"

    assert list(parse().prompt_ids) == list(tokenize(expected))


def test_thinking_off_closes_the_thought_in_the_prompt() -> None:
    thinking, plain = parse(), parse(**OFF)

    assert plain.prompt_ids[: len(thinking.prompt_ids) - 1] == thinking.prompt_ids[:-1]
    assert thinking.answer.reasoning_tokens > 0
    assert plain.answer.reasoning_tokens == 0


def test_text_parts_are_the_same_as_their_text() -> None:
    parts = [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "about integers."}]

    assert parse(messages=[{"role": "user", "content": parts}]).prompt_ids == parse().prompt_ids


def test_earlier_tool_calls_and_tools_are_part_of_the_prompt() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": {"name": "f"}}]}

    assert len(parse(messages=[*MESSAGES, call]).prompt_ids) > len(parse().prompt_ids) + 5
    assert len(parse(tools=[WEATHER]).prompt_ids) > len(parse().prompt_ids) + 10


def test_a_completion_prompt_is_text_or_token_ids() -> None:
    as_text = parse("completions")
    as_ids = parse("completions", prompt=list(as_text.prompt_ids))

    assert as_ids.prompt_ids == as_text.prompt_ids
    assert text(as_ids) == text(as_text)


def test_greedy_text_hangs_on_the_prompt_alone() -> None:
    plain = text(parse())

    assert text(parse(nonce="request 2", seed=5, max_tokens=50, ignore_eos=True, cache_salt="x")) == plain
    assert text(parse(messages=[{"role": "user", "content": "Something else."}])) != plain


def test_sampled_text_differs_from_request_to_request_unless_seeded() -> None:
    sampled = [text(parse(temperature=0.6, nonce=nonce)) for nonce in ("request 1", "request 2")]
    seeded = [text(parse(temperature=0.6, seed=3, nonce=nonce)) for nonce in ("request 1", "request 2")]

    assert sampled[0] != sampled[1]
    assert seeded[0] == seeded[1]
    assert text(parse(temperature=None)) != text(parse())


def test_an_answer_ends_naturally_unless_told_otherwise() -> None:
    natural = parse()
    cut = parse(max_tokens=10)
    ignored = parse(ignore_eos=True, max_tokens=1500)

    assert (natural.finish_reason, natural.output_tokens) == ("stop", natural.answer.natural_tokens)
    assert (cut.finish_reason, cut.output_tokens) == ("length", 10)
    assert (ignored.finish_reason, ignored.output_tokens) == ("length", 1500)


def test_min_tokens_holds_the_end_back() -> None:
    assert parse(min_tokens=900, max_tokens=1000).output_tokens == 900


def test_max_completion_tokens_goes_before_max_tokens() -> None:
    assert parse(max_completion_tokens=5, max_tokens=9).output_tokens == 5


def test_without_a_limit_the_context_is_the_limit() -> None:
    generation = parse(ignore_eos=True)

    assert generation.output_tokens == 2048 - len(generation.prompt_ids)


def test_a_forced_tool_call_ends_as_vllm_ends_it() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}

    assert parse(tools=[WEATHER], tool_choice="required").finish_reason == "tool_calls"
    assert parse(tools=[WEATHER], tool_choice=named).finish_reason == "stop"
    assert '{"city": "' in text(parse(tools=[WEATHER], tool_choice="required", **OFF))


def test_a_tool_left_to_choice_is_not_called() -> None:
    assert parse(tools=[WEATHER], tool_choice="auto").finish_reason == "stop"
    assert "city" not in text(parse(tools=[WEATHER], **OFF))


def test_log_probabilities_are_asked_for_in_each_endpoints_way() -> None:
    assert parse().options.logprobs is None
    assert parse(logprobs=True).options.logprobs == 0
    assert parse(logprobs=True, top_logprobs=5).options.logprobs == 5
    assert parse("completions", logprobs=2).options.logprobs == 2


def test_a_server_may_let_the_model_choose_tools() -> None:
    body: dict[str, Any] = {"messages": MESSAGES, "tools": [WEATHER], "temperature": 0}
    body["messages"] = [{"role": "user", "content": "How is the weather in Rome?"}]
    chosen = parse_generation(body, "chat", replace(LIMITS, automatic_tools=True), nonce="")

    assert chosen.finish_reason == "tool_calls"
    assert parse(**body).finish_reason == "stop"


def test_a_form_is_followed_behind_the_thoughts() -> None:
    formed = parse(structured_outputs={"regex": "(yes|no)"})
    pieces = [formed.answer.piece(position) for position in range(formed.output_tokens)]

    assert "".join(piece.text for piece in pieces if piece.channel == "content") in ("yes", "no")
    assert formed.answer.reasoning_tokens > 0


def test_stream_options_are_read() -> None:
    usage = {"include_usage": True, "continuous_usage_stats": True}
    options = parse(stream=True, stream_options=usage, return_token_ids=True).options

    assert (options.stream, options.include_usage, options.continuous_usage, options.token_ids) == (True,) * 4


def test_tokenize_takes_a_prompt_or_messages() -> None:
    assert parse_tokenize({"prompt": "one two"}) == tokenize("one two")
    assert parse_tokenize({"messages": MESSAGES}) == parse().prompt_ids


def refusal(endpoint: Endpoint = "chat", **body: Any) -> tuple[int, object]:
    with pytest.raises(RequestError) as caught:
        parse(endpoint, **body)
    return caught.value.status, caught.value.body()["error"]


def error(
    message: str, param: str | None, *, code: int = 400, kind: str = "BadRequestError"
) -> tuple[int, object]:
    return code, {"message": message, "type": kind, "param": param, "code": code}


LONG_CHAT = [{"role": "user", "content": " word" * 2100}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
# The first eight are vLLM 0.32's own words for the same requests.
REFUSALS: list[tuple[dict[str, Any], tuple[int, object]]] = [
    (
        {"model": "nope"},
        error(
            "The model `nope` does not exist. Valid aliases: tiny, small.",
            "model",
            code=404,
            kind="NotFoundError",
        ),
    ),
    (
        {"temperature": -1},
        error(
            "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)", "temperature"
        ),
    ),
    (
        {"max_tokens": 100000},
        error(
            "max_tokens=100000 cannot be greater than max_model_len=2048. Please request fewer output "
            "tokens. (parameter=max_tokens, value=100000)",
            "max_tokens",
        ),
    ),
    (
        {"min_tokens": 5, "max_tokens": 2},
        error("min_tokens must be less than or equal to max_tokens=2, got 5.", None),
    ),
    (
        {"messages": None},
        error(
            "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', "
            "'input': '<dict of 2 items>'}",
            "body.messages",
            kind="Bad Request",
        ),
    ),
    (
        {"messages": LONG_CHAT},
        error(
            "This model's maximum context length is 2048 tokens. However, your prompt contains at "
            "least 2111 input tokens, which exceeds this limit even without any output tokens. Please "
            "reduce the length of the input prompt. (parameter=input_tokens, value=2111)",
            "input_tokens",
        ),
    ),
    ({"messages": IMAGE}, error("At most 0 image(s) may be provided in one prompt.", None)),
    (
        {"max_tokens": 0},
        error("max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", "max_tokens"),
    ),
    (
        {"max_tokens": 2048},
        error(
            "This model's maximum context length is 2048 tokens. However, you requested 2048 output "
            "tokens and your prompt contains 17 input tokens. Please reduce the length of the input "
            "prompt or the number of requested output tokens. (parameter=input_tokens, value=17)",
            "input_tokens",
        ),
    ),
    ({"n": 2}, error("The simulator does not support n=2. Send n=1.", "n")),
    ({"stop": ["x"]}, error("The simulator does not support stop=['x']. Leave stop out.", "stop")),
    (
        {"prompt_logprobs": 1},
        error(
            "The simulator does not support prompt_logprobs=1. Leave prompt_logprobs out.", "prompt_logprobs"
        ),
    ),
    (
        {"logprobs": True, "top_logprobs": 1000},
        error(
            "Requested sample logprobs of 1000, which is greater than max allowed: 20 (parameter=logprobs, "
            "value=1000)",
            "logprobs",
        ),
    ),
    (
        {"top_logprobs": 5},
        error("when using `top_logprobs`, `logprobs` must be set to true.", None),
    ),
    (
        {"tool_choice": "required"},
        error("When using `tool_choice`, `tools` must be set and hold the named function.", None),
    ),
    (
        {"tool_choice": "any"},
        error(
            "1 validation error:\n  {'type': 'literal_error', 'loc': 'body.tool_choice', 'msg': "
            "'Input should be 'none', 'auto', 'required' or a named function', 'input': 'any'}",
            "body.tool_choice",
            kind="Bad Request",
        ),
    ),
    (
        {"stream": "yes"},
        error(
            "1 validation error:\n  {'type': 'bool_type', 'loc': 'body.stream', 'msg': 'Input should "
            "be a valid boolean', 'input': 'yes'}",
            "body.stream",
            kind="Bad Request",
        ),
    ),
    (
        {"temperature": "hot"},
        error(
            "1 validation error:\n  {'type': 'float_type', 'loc': 'body.temperature', 'msg': 'Input "
            "should be a valid number', 'input': 'hot'}",
            "body.temperature",
            kind="Bad Request",
        ),
    ),
]


@pytest.mark.parametrize(("body", "expected"), REFUSALS)
def test_refuses(body: dict[str, Any], expected: tuple[int, object]) -> None:
    assert refusal(**body) == expected


def test_refuses_several_prompts_in_one_request() -> None:
    text = "The simulator does not support this form of prompt. Send one text or one list of token ids."

    assert refusal("completions", prompt=["a", "b"]) == error(text, "prompt")


def test_refuses_an_empty_prompt() -> None:
    assert refusal("completions", prompt="") == error("The decoder prompt cannot be empty", None)


def test_accepts_fields_it_does_not_know() -> None:
    assert parse(some_future_field=1).output_tokens > 0


def test_a_request_without_a_model_gets_the_first_name() -> None:
    assert check_model({}, LIMITS) == "tiny"


def test_bad_json_is_refused_as_vllm_does() -> None:
    with pytest.raises(RequestError) as caught:
        decode_body(b'{"model":"tiny",')

    assert caught.value.body()["error"] == {
        "message": (
            "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.16', 'msg': 'JSON decode error', "
            "'input': '<dict of 0 items>', "
            "'ctx': {'error': 'Expecting property name enclosed in double quotes'}}"
        ),
        "type": "Bad Request",
        "param": "body.16",
        "code": 400,
    }


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        decode_body(b"[1]")

    assert caught.value.message == (
        "1 validation error:\n  {'type': 'dict_type', 'loc': 'body', 'msg': 'Input should be a valid "
        "dictionary', 'input': [1]}"
    )
