"""What the simulator answers where more is asked for than text: log-probabilities, tools, forms."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from simulator_process import SimProcess, StartSimulator
from stream_reader import CHAT, COMPLETIONS, Stream, call, chat_body, stream

from pytest_sparkperf.core.exposition import parse_exposition
from pytest_sparkperf.core.logprobs import Choice, read_choices
from pytest_sparkperf.core.tool_set import TOOLS, structured_questions, tool_questions
from pytest_sparkperf.sim.tokenizer import token_id

MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')
FLAGS = ("--served-model-name", "tiny", "--unpaced", "--jit-s", "0", "--enable-auto-tool-choice")


@pytest.fixture(scope="module")
def server(simulator: StartSimulator) -> SimProcess:
    return simulator(*FLAGS)


@pytest.fixture(scope="module")
def mtp_server(simulator: StartSimulator) -> SimProcess:
    return simulator(*FLAGS, *MTP)


def asked(question: Any, **fields: Any) -> dict[str, Any]:
    options = {"include_usage": True, "continuous_usage_stats": True}
    return {**question.body("tiny"), "stream": True, "stream_options": options, **fields}


def payloads(got: Stream) -> list[bytes]:
    return [text.encode() for _, text in got.events if text != "[DONE]"]


def sent_ids(got: Stream) -> list[int]:
    choices = [choice for chunk in got.chunks for choice in chunk["choices"]]
    return [token for choice in choices for token in choice.get("token_ids") or []]


def assembled(got: Stream) -> list[tuple[str, str]]:
    """Return name and arguments of each call by index."""
    calls: dict[int, tuple[str, str]] = {}
    for chunk in got.chunks[:-1]:
        for delta in chunk["choices"][0]["delta"].get("tool_calls", []):
            name, arguments = calls.get(delta["index"], ("", ""))
            function = delta["function"]
            calls[delta["index"]] = (
                name + function.get("name", ""),
                arguments + function.get("arguments", ""),
            )
    return [calls[index] for index in sorted(calls)]


def test_metrics_tell_the_prefix_cache(server: SimProcess, simulator: StartSimulator) -> None:
    off = simulator(*FLAGS, "--no-enable-prefix-caching")
    pages = [call(each.url, "/metrics").body.decode() for each in (server, off)]
    (on_labels,), (off_labels,) = (
        [dict(series) for series in parse_exposition(page).series("vllm:cache_config_info")] for page in pages
    )

    assert (on_labels["block_size"], on_labels["enable_prefix_caching"]) == ("16", "True")
    assert off_labels["enable_prefix_caching"] == "False"


def test_streamed_log_probabilities_belong_to_the_tokens(server: SimProcess, mtp_server: SimProcess) -> None:
    body = chat_body(logprobs=True, top_logprobs=3, return_token_ids=True)
    told: list[dict[int, Choice]] = []
    for each in (server, mtp_server):
        got = stream(each.url, body)
        choices = dict(read_choices(payloads(got), "chat"))
        told.append(choices)

        assert [token_id(choices[at].token) for at in range(24)] == sent_ids(got)
        assert {len(choice.candidates) for choice in choices.values()} == {3}
        assert "".join(choices[at].token for at in range(24)) == got.text
    assert told[0] == told[1]


def test_a_completions_log_probabilities_have_offsets_into_its_text(mtp_server: SimProcess) -> None:
    body = {"prompt": "Floating point", "max_tokens": 20, "stream": True, "temperature": 0, "logprobs": 2}
    got = stream(mtp_server.url, body, COMPLETIONS)
    told = [chunk["choices"][0]["logprobs"] for chunk in got.chunks]
    offsets = [offset for each in told for offset in each["text_offset"]]
    tokens = [token for each in told for token in each["tokens"]]

    assert all(got.text[at:].startswith(token) for at, token in zip(offsets, tokens, strict=True))
    assert "".join(tokens) == got.text
    assert {len(top) for each in told for top in each["top_logprobs"]} == {2}


def test_a_whole_answer_has_the_same_log_probabilities(server: SimProcess) -> None:
    body = chat_body(logprobs=True, top_logprobs=2)
    streamed = [chunk["choices"][0]["logprobs"] for chunk in stream(server.url, body).chunks[1:-1]]
    (choice,) = call(server.url, CHAT, body | {"stream": False}).json()["choices"]

    assert choice["logprobs"]["content"] == [entry for each in streamed for entry in each["content"]]


@pytest.mark.parametrize("question", tool_questions(), ids=lambda question: question.name)
def test_the_built_in_tool_questions_are_answered_with_calls(
    server: SimProcess, mtp_server: SimProcess, question: Any
) -> None:
    off, on = (stream(each.url, asked(question, max_tokens=2000)) for each in (server, mtp_server))
    names = [tool["function"]["name"] for tool in TOOLS]

    assert assembled(off) == assembled(on)
    assert all(name in names and isinstance(json.loads(text), dict) for name, text in assembled(off))
    assert off.chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_whole_and_streamed_calls_are_the_same(server: SimProcess) -> None:
    parallel = next(each for each in tool_questions() if each.name == "tool-parallel")
    message = call(server.url, CHAT, parallel.body("tiny")).json()["choices"][0]["message"]
    whole = [(each["function"]["name"], each["function"]["arguments"]) for each in message["tool_calls"]]

    assert whole == assembled(stream(server.url, asked(parallel)))
    assert len({each["id"] for each in message["tool_calls"]}) == 3


@pytest.mark.parametrize("thinking", [False, True])
def test_the_built_in_forms_are_followed(mtp_server: SimProcess, thinking: bool) -> None:
    for question in structured_questions(max_tokens=1000, thinking=thinking):
        got = stream(mtp_server.url, asked(question))
        deltas = [chunk["choices"][0]["delta"] for chunk in got.chunks[:-1]]
        content = "".join(delta.get("content", "") for delta in deltas)

        assert got.chunks[-2]["choices"][0]["finish_reason"] == "stop"
        if question.pattern is None:
            assert set(json.loads(content)) == {"city", "population", "rivers"}
        else:
            assert re.fullmatch(question.pattern, content)


def test_a_form_that_is_not_known_is_refused(server: SimProcess) -> None:
    reply = call(server.url, CHAT, chat_body(guided_json={"allOf": []}))

    assert reply.status == 400
    assert reply.json()["error"]["message"].startswith(
        "The simulator does not support allOf in a JSON schema. It knows type, properties, "
    )


def test_a_server_that_is_not_paced_says_so(server: SimProcess) -> None:
    info = call(server.url, "/server_info?config_format=json").json()

    assert call(server.url, "/version").json() == {"version": "0.32.0+unpaced.sparkperf.sim"}
    assert info["system_env"]["paced"] is False
    assert "SIMULATED as gb10-nvfp4, not paced: no speed of it counts" in server.log()
