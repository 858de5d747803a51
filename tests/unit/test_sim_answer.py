from __future__ import annotations

import json

import pytest

from pytest_sparkperf.sim.answer import Answer, ToolCall, invent_arguments, prompt_digest, uniform
from pytest_sparkperf.sim.tokenizer import END_OF_THINKING, END_OF_TURN_ID, token_id, tokenize

DIGEST = prompt_digest([5, 6, 7])
CALL = ToolCall("get_weather", '{"city": "Rome"}')


def text_of(answer: Answer, channel: str) -> str:
    pieces = (answer.piece(position) for position in range(answer.natural_tokens))
    return "".join(piece.text for piece in pieces if piece.channel == channel)


def test_the_same_prompt_gets_the_same_answer_and_another_one_another() -> None:
    first = Answer(DIGEST, thinking=True)
    other = Answer(prompt_digest([5, 6, 8]), thinking=True)

    assert text_of(first, "content") == text_of(Answer(DIGEST, thinking=True), "content")
    assert text_of(first, "content") != text_of(other, "content")


def test_a_nonce_gives_sampled_text() -> None:
    assert prompt_digest([5, 6, 7], "request 2") not in {DIGEST, prompt_digest([5, 6, 7], "request 3")}


@pytest.mark.parametrize("prompt", range(20))
def test_content_is_cut_into_the_very_tokens_it_was_sent_in(prompt: int) -> None:
    answer = Answer(prompt_digest([prompt]), thinking=False)
    sent = [answer.piece(position).token_id for position in range(answer.natural_tokens)]

    assert tokenize(text_of(answer, "content")) == sent[:-1]
    assert sent[-1] == END_OF_TURN_ID


def test_thinking_comes_first_and_ends_with_its_own_token() -> None:
    answer = Answer(DIGEST, thinking=True)
    channels = [answer.piece(position).channel for position in range(answer.natural_tokens)]
    end = answer.reasoning_tokens

    assert set(channels[:end]) == {"reasoning"}
    assert answer.piece(end).token_id == token_id(END_OF_THINKING)
    assert set(channels[end + 1 : -1]) == {"content"}
    assert text_of(answer, "content").startswith("\n\n")


def test_without_thinking_there_is_no_reasoning() -> None:
    answer = Answer(DIGEST, thinking=False)

    assert answer.reasoning_tokens == 0
    assert text_of(answer, "reasoning") == ""


def test_text_goes_on_behind_the_end_of_turn() -> None:
    answer = Answer(DIGEST, thinking=False)

    assert answer.piece(answer.natural_tokens).text.startswith((" ", ",", "."))


def test_min_tokens_moves_the_natural_end() -> None:
    assert Answer(DIGEST, thinking=False, min_tokens=3000).natural_tokens == 3000


def test_a_forced_call_is_all_there_is_besides_thinking() -> None:
    answer = Answer(DIGEST, thinking=True, tool=CALL)

    assert text_of(answer, "tool_name") == "get_weather"
    assert text_of(answer, "tool_arguments") == '{"city": "Rome"}'
    assert text_of(answer, "content") == ""
    assert answer.piece(answer.natural_tokens - 1).token_id == END_OF_TURN_ID


def test_arguments_follow_the_schema() -> None:
    kinds = {"a": "string", "b": "integer", "c": "boolean", "d": "array", "e": "object"}
    schema = {"properties": {name: {"type": kind} for name, kind in kinds.items()}}
    arguments = json.loads(invent_arguments(DIGEST, schema))

    assert [type(value) for value in arguments.values()] == [str, int, bool, list, dict]


def test_arguments_without_a_schema_are_empty() -> None:
    assert invent_arguments(DIGEST, {}) == "{}"


def test_draws_are_even() -> None:
    drawn = [uniform(DIGEST, "accept", position) for position in range(4000)]

    assert min(drawn) >= 0.0
    assert max(drawn) < 1.0
    # Standard error of the mean is 0.0046.
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.02)
