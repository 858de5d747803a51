from __future__ import annotations

import pytest

from pytest_sparkperf.sim.answer import Answer, ToolCall
from pytest_sparkperf.sim.tokenizer import END_OF_THINKING, END_OF_TURN_ID, token_id, tokenize
from pytest_sparkperf.sim.twist import Twist
from pytest_sparkperf.sim.words import prompt_digest, uniform

DIGEST = prompt_digest([5, 6, 7])
CALL = ToolCall("get_weather", '{"city": "Rome"}')


def text_of(answer: Answer, channel: str) -> str:
    pieces = (answer.piece(position) for position in range(answer.natural_tokens))
    return "".join(piece.text for piece in pieces if piece.channel == channel)


def ids(answer: Answer, count: int) -> tuple[int, ...]:
    return tuple(answer.piece(position).token_id for position in range(count))


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
    sent = ids(answer, answer.natural_tokens)

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
    answer = Answer(DIGEST, thinking=True, calls=(CALL,))

    assert text_of(answer, "tool_name") == "get_weather"
    assert text_of(answer, "tool_arguments") == '{"city": "Rome"}'
    assert text_of(answer, "content") == ""
    assert answer.piece(answer.natural_tokens - 1).token_id == END_OF_TURN_ID


def test_several_calls_come_one_after_the_other() -> None:
    answer = Answer(DIGEST, thinking=False, calls=(CALL, ToolCall("get_time", "{}")))
    pieces = [answer.piece(position) for position in range(answer.natural_tokens)]
    names = [(piece.call, piece.text) for piece in pieces if piece.channel == "tool_name"]

    assert names == [(0, "get_weather"), (1, "get_time")]


def test_a_document_is_all_the_content_there_is() -> None:
    answer = Answer(DIGEST, thinking=True, document='{"city": "Rome"}')

    assert text_of(answer, "content") == '{"city": "Rome"}'
    assert answer.piece(answer.natural_tokens - 1).token_id == END_OF_TURN_ID


def test_a_leaked_call_has_the_same_tokens_and_shows_them() -> None:
    sound, leaked = (
        Answer(DIGEST, thinking=False, calls=(CALL,), twist=twist) for twist in (Twist(), Twist(leak=True))
    )

    assert ids(leaked, leaked.natural_tokens) == ids(sound, sound.natural_tokens)
    assert text_of(leaked, "content") == '<tool_call>get_weather{"city": "Rome"}</tool_call>'
    assert text_of(leaked, "tool_name") == ""


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("at", [1, 7, 20])
def test_a_fork_leaves_what_stands_before_it_and_changes_the_token_itself(thinking: bool, at: int) -> None:
    straight = Answer(DIGEST, thinking=thinking)
    forks = [
        Answer(DIGEST, thinking=thinking, twist=Twist(fork_at=at, fork_label=label)) for label in ("a", "b")
    ]

    for fork in forks:
        assert ids(fork, at) == ids(straight, at)
        assert fork.piece(at).token_id != straight.piece(at).token_id
        assert fork.natural_tokens == straight.natural_tokens
    assert ids(forks[0], 40) != ids(forks[1], 40)


@pytest.mark.parametrize("prompt", range(10))
def test_twisted_text_is_cut_into_the_very_tokens_it_was_sent_in(prompt: int) -> None:
    for twist in (Twist(fork_at=5, fork_label="x"), Twist(repeat_at=5)):
        answer = Answer(prompt_digest([prompt]), thinking=False, twist=twist)

        assert tokenize(text_of(answer, "content")) == ids(answer, answer.natural_tokens - 1)


def test_a_fork_leaves_calls_and_documents_alone() -> None:
    answer = Answer(DIGEST, thinking=False, calls=(CALL,), twist=Twist(fork_at=2))

    assert text_of(answer, "tool_arguments") == '{"city": "Rome"}'


def test_a_text_that_repeats_itself_has_a_period_of_eight() -> None:
    sent = ids(Answer(DIGEST, thinking=False, twist=Twist(repeat_at=10)), 58)

    assert sent[10:50] == sent[18:58]
    assert sent[:10] == ids(Answer(DIGEST, thinking=False), 10)


def test_an_end_may_come_early() -> None:
    answer = Answer(DIGEST, thinking=False, twist=Twist(end_at=9))

    assert answer.natural_tokens == 10
    assert answer.piece(9).token_id == END_OF_TURN_ID
    assert answer.piece(10).channel == "content"


def test_draws_are_even() -> None:
    drawn = [uniform(DIGEST, "accept", position) for position in range(4000)]

    assert min(drawn) >= 0.0
    assert max(drawn) < 1.0
    # Standard error of the mean is 0.0046.
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.02)
