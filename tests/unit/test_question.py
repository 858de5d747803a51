"""Questions: the bodies they become, the shipped ones and the user's own."""

from __future__ import annotations

import json

import pytest

from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.own_files import OwnFiles, parse_messages
from pytest_sparkperf.core.question import Question, own_questions, plain_questions, user_message
from pytest_sparkperf.core.workload import GREEDY


def test_body_is_greedy_ends_naturally_and_carries_the_salt() -> None:
    body = Question("p", user_message("Hi")).body("m", salt="s")

    assert body == {
        "model": "m",
        "max_tokens": 512,
        **GREEDY,
        "chat_template_kwargs": {"enable_thinking": False},
        "cache_salt": "s",
        "messages": [{"role": "user", "content": "Hi"}],
    }
    assert "ignore_eos" not in body


def test_candidates_are_asked_for_as_each_endpoint_has_it() -> None:
    chat = Question("p", user_message("Hi"), thinking=True).body("m", candidates=True)
    plain = Question("p", FrozenMap({"prompt": "Hi"}), endpoint="completions").body("m", candidates=True)

    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 5)
    assert chat["chat_template_kwargs"] == {"enable_thinking": True}
    assert plain["logprobs"] == 5
    assert not {"top_logprobs", "chat_template_kwargs"} & plain.keys()


@pytest.mark.parametrize(
    ("thinking", "max_tokens", "expected"), [(False, None, 512), (True, None, 1024), (True, 64, 64)]
)
def test_twelve_plain_questions_are_all_different(
    thinking: bool, max_tokens: int | None, expected: int
) -> None:
    questions = plain_questions(thinking=thinking, max_tokens=max_tokens)

    assert len(questions) == len({question.fields for question in questions}) == 12
    assert {(question.max_tokens, question.thinking) for question in questions} == {(expected, thinking)}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
IMAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
}


def test_own_messages_are_asked_as_they_are() -> None:
    files = OwnFiles(parse_messages(json.dumps([[IMAGE], [IMAGE, IMAGE]]), "m.json"), (FrozenMap(TOOL),))

    one, other = own_questions(files, max_tokens=9)

    assert (one.name, other.name) == ("messages-0", "messages-1")
    assert one.body("m")["messages"] == [IMAGE]
    assert one.body("m")["tools"] == [TOOL] == list(one.tools)
    assert other.body("m")["messages"] == [IMAGE, IMAGE]
    assert other.max_tokens == 9
