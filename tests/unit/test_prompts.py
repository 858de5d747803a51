"""The shipped prompts: how many, how long, how different."""

from __future__ import annotations

import ast
import json
import re

import pytest

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.prompts import MAX_CONCURRENCY, Prompt, shipped_prompts

ALL = shipped_prompts(MAX_CONCURRENCY)
KINDS = ("code", "chat", "json", "prose")


def estimated_tokens(text: str) -> int:
    """Count words and marks; a tokenizer of 131,072 tokens counts 2 % more to 11 % more on these texts."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def kind_of(prompt: Prompt) -> str:
    return prompt.name.partition("-")[0]


def test_one_stream_gets_the_four_kinds() -> None:
    assert tuple(prompt.name for prompt in shipped_prompts(1)) == KINDS


@pytest.mark.parametrize("concurrency", [4, 5, 8, 32, 33, 100, 256])
def test_a_burst_gets_as_many_different_texts_as_it_has_requests(concurrency: int) -> None:
    prompts = shipped_prompts(concurrency)
    assert len(prompts) == concurrency
    assert len({prompt.text for prompt in prompts}) == concurrency
    assert len({prompt.name for prompt in prompts}) == concurrency


def test_a_larger_burst_continues_a_smaller_one() -> None:
    assert shipped_prompts(32)[:4] == shipped_prompts(1)
    assert shipped_prompts(256)[:32] == shipped_prompts(32)


@pytest.mark.parametrize("concurrency", [8, 32, 256])
def test_a_burst_mixes_the_kinds_evenly(concurrency: int) -> None:
    kinds = [kind_of(prompt) for prompt in shipped_prompts(concurrency)]
    assert {kinds.count(kind) for kind in KINDS} == {concurrency // 4}


def test_no_two_prompts_share_their_first_words() -> None:
    assert len({tuple(prompt.text.split()[:2]) for prompt in ALL}) == len(ALL)


def test_the_32_prompts_of_a_default_burst_differ_in_the_first_word() -> None:
    assert len({prompt.text.split()[0] for prompt in shipped_prompts(32)}) == 32


def test_every_prompt_is_about_a_thousand_tokens_long() -> None:
    counts = {prompt.name: estimated_tokens(prompt.text) for prompt in ALL}
    assert {name: count for name, count in counts.items() if not 900 <= count <= 1_150} == {}


def test_no_slot_is_left_open() -> None:
    assert [prompt.name for prompt in ALL if re.search(r"\$|\{place|\{thing", prompt.text)] == []


def test_variations_differ_in_more_than_their_beginning() -> None:
    for index in range(4, 32):
        same_kind = ALL[index % 4]
        lines = set(ALL[index].text.splitlines()) - set(same_kind.text.splitlines())
        assert len(lines) >= 5, ALL[index].name


def test_every_code_prompt_holds_valid_python() -> None:
    for prompt in ALL:
        if kind_of(prompt) == "code":
            ast.parse(prompt.text.split("```python\n")[1].split("```")[0])


def test_every_json_prompt_holds_a_valid_document() -> None:
    for prompt in ALL:
        if kind_of(prompt) == "json":
            document = json.loads(prompt.text.split("```json\n")[1].split("```")[0])
            assert len(document["stations"]) == 4


@pytest.mark.parametrize("concurrency", [0, -1, 257])
def test_a_concurrency_without_enough_prompts_is_refused(concurrency: int) -> None:
    with pytest.raises(ConfigError) as caught:
        shipped_prompts(concurrency)
    assert str(caught.value) == (
        f"concurrency is {concurrency}; the shipped prompts serve 1 to 256 different requests at once: "
        "lower it, or name a dataset in the workload"
    )
