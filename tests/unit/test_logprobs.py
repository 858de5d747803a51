"""Log-probabilities in streams: which token has which candidates."""

from __future__ import annotations

import json

import pytest
from recorded_streams import STREAMS, endpoint_of

from pytest_sparkperf.core.logprobs import Choice, read_choices
from pytest_sparkperf.core.sse import SseDecoder


def payloads(name: str) -> list[bytes]:
    decoder = SseDecoder()
    raw = (STREAMS / f"{name}.raw").read_bytes()
    return [one for one in decoder.feed(raw) + decoder.close() if one != b"[DONE]"]


def event(token_ids: list[int] | None, *entries: tuple[str, dict[str, float]]) -> bytes:
    content = [
        {
            "token": token,
            "logprob": tops.get(token),
            "top_logprobs": [{"token": one, "logprob": value} for one, value in tops.items()],
        }
        for token, tops in entries
    ]
    choice = {"index": 0, "delta": {}, "logprobs": {"content": content}, "token_ids": token_ids}
    return json.dumps({"choices": [choice]}).encode()


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        (
            "vllm-0.24-h200/k3.chat_stream_logprobs",
            Choice("O", {"O": -0.0502360463142395, "The": -3.4877359867095947}),
            Choice("k", {"k": -0.008160581812262535, "14": -7.101910591125488}),
        ),
        (
            "vllm-0.24-h200/k3.cmpl_stream_logprobs",
            Choice("*" * 20, {"*" * 20: -0.06978637725114822, "ne": -3.851036310195923}),
            Choice("***", {"***": -0.027074402198195457, "*" * 16: -5.527074337005615}),
        ),
    ],
)
def test_recorded_streams_tell_every_token_of_theirs(name: str, first: Choice, second: Choice) -> None:
    choices = read_choices(payloads(name), endpoint_of(name))

    assert (choices[0], choices[1]) == (first, second)
    assert list(choices) == list(range(len(choices)))
    assert first.logprob == first.candidates[first.token]


@pytest.mark.parametrize(("server", "arms"), [("vllm-0.32-cpu", ("off", "k1", "k3"))])
def test_text_of_the_tokens_is_the_same_with_and_without_speculation(
    server: str, arms: tuple[str, ...]
) -> None:
    found = [read_choices(payloads(f"{server}/{arm}.chat_stream_logprobs"), "chat") for arm in arms]
    texts = ["".join(choice.token for choice in choices.values()) for choices in found]

    assert texts[0] == texts[1] == texts[2]
    assert len(found[0]) == 48


def test_positions_follow_the_ids() -> None:
    events = [event([5], ("a", {"a": -1.0})), event([6, 7], ("b", {"b": -2.0}), ("c", {"c": -3.0}))]

    assert {at: choice.token for at, choice in read_choices(events, "chat").items()} == {
        0: "a",
        1: "b",
        2: "c",
    }


def test_an_event_whose_numbers_do_not_agree_tells_nothing_but_moves_on() -> None:
    events = [event([5, 6], ("a", {"a": -1.0})), event([7], ("c", {"c": -3.0}))]

    assert {at: choice.token for at, choice in read_choices(events, "chat").items()} == {2: "c"}


def test_the_tokens_own_value_counts_where_it_is_not_among_the_best() -> None:
    body = {
        "choices": [
            {
                "index": 0,
                "logprobs": {
                    "content": [
                        {"token": "x", "logprob": -4.0, "top_logprobs": [{"token": "y", "logprob": -0.1}]}
                    ]
                },
                "token_ids": [1],
            }
        ]
    }

    (choice,) = read_choices([json.dumps(body).encode()], "chat").values()

    assert choice.logprob == -4.0
    assert choice.top2_gap == pytest.approx(3.9)


def test_one_candidate_has_no_gap() -> None:
    assert Choice("a", {"a": -0.1}).top2_gap is None
    assert Choice("a").logprob is None


@pytest.mark.parametrize(
    "payload",
    [b"", b"no json", b"[]", b"{}", b'{"choices": []}', b'{"choices": [null]}', b'{"choices": [{}]}'],
)
def test_events_without_log_probabilities_are_passed_over(payload: bytes) -> None:
    assert read_choices([payload], "chat") == {}
    assert read_choices([payload], "completions") == {}
