from __future__ import annotations

from itertools import islice

import pytest

from pytest_sparkperf.sim.answer import Answer, ToolCall
from pytest_sparkperf.sim.logprobs import candidates, chat_logprobs, completion_logprobs
from pytest_sparkperf.sim.twist import Twist
from pytest_sparkperf.sim.words import prompt_digest

DIGEST = prompt_digest([5, 6, 7])
ANSWER = Answer(DIGEST, thinking=False)


def test_the_token_itself_is_the_best_and_none_comes_twice() -> None:
    for position in range(60):
        found = candidates(ANSWER, position, 20)
        values = [each.logprob for each in found]

        assert found[0].token == ANSWER.piece(position).token
        assert len({each.token for each in found}) == 20
        assert values == sorted(values, reverse=True)
        assert values[0] < 0
        assert values[0] - values[1] > 1


def test_a_sure_fork_has_the_straight_token_far_behind() -> None:
    fork = Answer(DIGEST, thinking=False, twist=Twist(fork_at=7, fork_label="diverge"))
    found = {each.token: each.logprob for each in candidates(fork, 7, 5)}

    assert found[fork.piece(7).token] - found[ANSWER.piece(7).token] > 1


def test_a_tie_is_within_a_hundredth_and_the_same_on_both_sides() -> None:
    kept = Answer(DIGEST, thinking=False, twist=Twist(tie_at=7))
    flipped = Answer(DIGEST, thinking=False, twist=Twist(tie_at=7, fork_at=7, fork_label="tie"))
    one, other = candidates(kept, 7, 2), candidates(flipped, 7, 2)

    assert [each.token for each in one] == [each.token for each in other][::-1]
    assert one[0].logprob - one[1].logprob == pytest.approx(0.005)
    assert candidates(kept, 8, 2)[0].logprob - candidates(kept, 8, 2)[1].logprob > 1


def test_control_tokens_are_told_by_their_spelling() -> None:
    called = Answer(DIGEST, thinking=False, calls=(ToolCall("f", "{}"),))

    assert candidates(called, 0, 1)[0].token == "<tool_call>"
    assert candidates(called, called.natural_tokens - 1, 1)[0].token == "<|im_end|>"


def test_a_chat_answer_has_vllms_entries() -> None:
    logprobs = chat_logprobs(ANSWER, [0, 1], 2)
    content = logprobs["content"]

    assert isinstance(content, list)
    assert list(logprobs) == ["content"]
    assert [list(entry) for entry in content] == [["token", "logprob", "bytes", "top_logprobs"]] * 2
    first = content[0]
    assert first["bytes"] == list(first["token"].encode())
    assert first["top_logprobs"][0] == {key: first[key] for key in ("token", "logprob", "bytes")}
    assert [len(entry["top_logprobs"]) for entry in content] == [2, 2]
    assert chat_logprobs(ANSWER, [0], 0)["content"] == [first | {"top_logprobs": []}]


def test_a_completion_has_vllms_columns() -> None:
    logprobs = completion_logprobs(ANSWER, [3, 4], 2, offset=20)

    assert list(logprobs) == ["text_offset", "token_logprobs", "tokens", "top_logprobs"]
    assert logprobs["text_offset"] == [20, 20 + len(ANSWER.piece(3).text)]
    assert logprobs["tokens"] == [ANSWER.piece(3).token, ANSWER.piece(4).token]
    tops = logprobs["top_logprobs"]
    assert isinstance(tops, list)
    assert [len(top) for top in tops] == [2, 2]


def test_rivals_go_on_for_ever() -> None:
    assert len(set(islice(ANSWER.rivals(3), 50))) == 50
