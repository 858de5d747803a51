"""Request bodies, prompts fitted to a token count, and the digest of a workload."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.prompts import Prompt, shipped_prompts
from pytest_sparkperf.core.workload import (
    fit_prompt,
    fit_prompts,
    request_body,
    salted,
    token_fields,
    trimmed,
    workload_digest,
)

HELLO = Prompt("hello", "Say hello.")
GREEDY_FIELDS = {
    "temperature": 0,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}


def body_of(load: Load, salt: str | None = None) -> dict[str, Any]:
    return request_body(load, HELLO, model="tiny", salt=salt)


def words_and_template(text: str) -> int:
    """Count as a server would whose template costs 7 tokens and whose words are one token each."""
    return 7 + len(text.split())


def test_the_default_load_is_greedy_chat_without_thinking() -> None:
    assert body_of(Load()) == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 256,
        "ignore_eos": True,
        "chat_template_kwargs": {"enable_thinking": False},
        **GREEDY_FIELDS,
    }


def test_completions_send_the_bare_text() -> None:
    assert body_of(Load(endpoint="completions", output_tokens=32)) == {
        "model": "tiny",
        "prompt": "Say hello.",
        "max_tokens": 32,
        "ignore_eos": True,
        **GREEDY_FIELDS,
    }


def test_thinking_is_asked_for_by_name() -> None:
    assert body_of(Load(thinking=True))["chat_template_kwargs"] == {"enable_thinking": True}


def test_sampling_of_the_server_sends_no_sampling_fields() -> None:
    assert GREEDY_FIELDS.keys().isdisjoint(body_of(Load(sampling="server")))


def test_sampling_fields_are_sent_as_given() -> None:
    body = body_of(Load(sampling=FrozenMap({"temperature": 0.7, "seed": 1})))
    assert (body["temperature"], body["seed"]) == (0.7, 1)
    assert "top_p" not in body


def test_a_salt_goes_into_its_field_and_leaves_the_text_alone() -> None:
    assert body_of(Load(), salt="r1-4") == body_of(Load()) | {"cache_salt": "r1-4"}


def test_extra_fields_win() -> None:
    body = body_of(Load(body=FrozenMap({"temperature": 0.5, "ignore_eos": False, "priority": 3})))
    assert (body["temperature"], body["ignore_eos"], body["priority"]) == (0.5, False, 3)


def test_extra_template_arguments_join_ours() -> None:
    load = Load(body=FrozenMap({"chat_template_kwargs": {"tone": "dry"}}))
    assert body_of(load)["chat_template_kwargs"] == {"enable_thinking": False, "tone": "dry"}


def test_a_body_is_plain_json() -> None:
    load = Load(body=FrozenMap({"stop": ["a", "b"], "logit_bias": {"5": -1}}))
    body = body_of(load)
    assert json.loads(json.dumps(body)) == body


@pytest.mark.parametrize("field", ["model", "messages", "prompt", "n", "stream", "stream_options"])
def test_a_field_that_a_load_sets_itself_is_refused(field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        body_of(Load(body=FrozenMap({field: 1, "priority": 3})))
    assert str(caught.value) == (
        f"body sets {field}; a load sets model, messages, prompt, n, stream, stream_options itself: remove "
        "it from body, and use the keywords model and endpoint to choose these"
    )


def test_a_text_salt_comes_first_and_keeps_the_name() -> None:
    assert salted(HELLO, "r1-4") == Prompt("hello", "r1-4\n\nSay hello.")


def test_trimmed_keeps_the_space_between_words() -> None:
    assert trimmed(Prompt("code", "def f():\n    return 1\n"), 3).text == "def f():\n    return"


def test_a_long_prompt_is_cut_to_the_count() -> None:
    prompt = shipped_prompts(1)[0]
    fitted = fit_prompt(prompt, 100, words_and_template, ())
    assert words_and_template(fitted.text) == 100
    assert prompt.text.startswith(fitted.text)
    assert fitted.name == "code"


def test_a_short_prompt_is_continued_with_other_texts() -> None:
    code, chat, *_ = shipped_prompts(1)
    fitted = fit_prompt(code, 5_000, words_and_template, (chat,))
    assert words_and_template(fitted.text) == 5_000
    assert fitted.text.startswith(code.text + "\n\n" + chat.text + "\n\n" + chat.text)


def test_few_counts_are_needed() -> None:
    counts: list[int] = []

    def counting(text: str) -> int:
        counts.append(words_and_template(text))
        return counts[-1]

    fit_prompt(shipped_prompts(1)[3], 100_000, counting, shipped_prompts(32))
    assert len(counts) <= 22


def test_fitted_prompts_differ_in_what_they_continue_with() -> None:
    prompts = shipped_prompts(8)
    fitted = fit_prompts(prompts, 2_000, words_and_template, shipped_prompts(32))
    assert {words_and_template(prompt.text) for prompt in fitted} == {2_000}
    assert len({prompt.text[-400:] for prompt in fitted}) == 8
    assert [prompt.name for prompt in fitted] == [prompt.name for prompt in prompts]


def test_a_count_below_the_template_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        fit_prompt(HELLO, 3, words_and_template, ())
    assert str(caught.value) == (
        "prompt_tokens is 3, but one word and the chat template are 8 tokens: set prompt_tokens to 8 or more"
    )


def characters_per_token(size: int) -> Callable[[str], int]:
    return lambda text: 5 + -(-len(text) // size)


@given(
    words=st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=60),
    gap=st.sampled_from([" ", "\n", "\n\n    "]),
    prompt_tokens=st.integers(20, 200),
    size=st.integers(1, 4),
)
def test_no_longer_beginning_would_fit(words: list[str], gap: str, prompt_tokens: int, size: int) -> None:
    count = characters_per_token(size)
    prompt = Prompt("p", gap.join(words))
    fitted = fit_prompt(prompt, prompt_tokens, count, (Prompt("m", "more of it"),))
    taken = len(fitted.text.split())
    whole = Prompt("p", prompt.text + "\n\nmore of it" * 90)
    assert trimmed(whole, taken) == fitted
    assert count(fitted.text) <= prompt_tokens < count(trimmed(whole, taken + 1).text)


LOAD = Load(body=FrozenMap({"priority": 1, "stop": ["x"]}))


@pytest.mark.parametrize(
    "other",
    [
        replace(LOAD, endpoint="completions"),
        replace(LOAD, output_tokens=255),
        replace(LOAD, concurrency=2),
        replace(LOAD, thinking=True),
        replace(LOAD, sampling="server"),
        replace(LOAD, body=FrozenMap({"priority": 2, "stop": ["x"]})),
        replace(LOAD, prefix_cache="warm"),
    ],
)
def test_the_digest_tells_loads_apart(other: Load) -> None:
    assert workload_digest(LOAD, [HELLO]) != workload_digest(other, [HELLO])


def test_the_digest_tells_texts_apart() -> None:
    assert workload_digest(LOAD, [HELLO]) != workload_digest(LOAD, [Prompt("hello", "Say hello!")])


def test_the_order_of_extra_fields_does_not_change_the_digest() -> None:
    turned = replace(LOAD, body=FrozenMap({"stop": ["x"], "priority": 1}))
    assert workload_digest(LOAD, [HELLO]) == workload_digest(turned, [HELLO])


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "from pytest_sparkperf.core.load import Load\n"
        "from pytest_sparkperf.core.prompts import shipped_prompts\n"
        "from pytest_sparkperf.core.workload import workload_digest\n"
        "print(workload_digest(Load(), shipped_prompts(1)), end='')"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert seen == workload_digest(Load(), shipped_prompts(1))


@pytest.mark.parametrize(("concurrency", "digest"), [(1, "c4c33f705e66843e"), (32, "de9dea9da2493fb0")])
def test_the_default_workload_has_not_changed(concurrency: int, digest: str) -> None:
    # A new digest parts every recorded baseline from new measurements: change it on purpose only.
    assert workload_digest(Load(concurrency=concurrency), shipped_prompts(concurrency)) == digest


def test_a_system_prompt_and_earlier_turns_come_first() -> None:
    prompt = replace(HELLO, history=(("user", "Hi."), ("assistant", "Yes?")))
    body = request_body(Load(system_prompt="Be brief."), prompt, model="tiny", salt=None)
    completion = request_body(Load(endpoint="completions"), prompt, model="tiny", salt=None)

    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "Be brief."),
        ("user", "Hi."),
        ("assistant", "Yes?"),
        ("user", "Say hello."),
    ]
    assert completion["prompt"] == "Hi.\n\nYes?\n\nSay hello."


def test_an_answer_may_end_by_itself_or_have_the_length_of_its_dataset() -> None:
    prompt = replace(HELLO, output_tokens=17)
    natural = body_of(Load(ignore_eos=False, output_tokens=64))
    own = request_body(Load(own_lengths=True), prompt, model="tiny", salt=None)
    fixed = request_body(Load(), prompt, model="tiny", salt=None)

    assert (natural["ignore_eos"], natural["max_tokens"]) == (False, 64)
    assert [body["max_tokens"] for body in (own, fixed)] == [17, 256]
    assert request_body(Load(own_lengths=True), HELLO, model="tiny", salt=None)["max_tokens"] == 256


@pytest.mark.parametrize(
    "other",
    [
        Load(prompt_tokens=512),
        Load(depth=512),
        Load(dataset="random", prompt_tokens=512),
        Load(dataset="random", prompt_tokens=512, seed=1),
        Load(ignore_eos=False),
        Load(system_prompt="Be brief."),
        Load(own_lengths=True),
    ],
)
def test_whatever_changes_the_work_changes_its_digest(other: Load) -> None:
    others = (Load(), Load(dataset="random", prompt_tokens=512)) if other.seed else (Load(),)

    assert workload_digest(other, [HELLO]) not in {workload_digest(one, [HELLO]) for one in others}


def test_tokens_are_counted_of_what_makes_the_prompt() -> None:
    body = request_body(Load(body=FrozenMap({"tools": [], "top_k": 5})), HELLO, model="tiny", salt="x")

    assert sorted(token_fields(body)) == ["chat_template_kwargs", "messages", "model", "tools"]
