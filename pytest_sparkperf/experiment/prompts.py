"""From a load to the prompts that are sent: made or read, then fitted to the server's own tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_sparkperf.adapters.dataset_file import dataset_digest, read_dataset
from pytest_sparkperf.adapters.own_files import read_own_files
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.context import context_text, fit_context, is_numbered, numbered
from pytest_sparkperf.core.dataset import Dataset, Row, is_file
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.load import RANDOM, SONNET, Load
from pytest_sparkperf.core.own_files import own_prompts
from pytest_sparkperf.core.prompts import MAX_CONCURRENCY, Prompt, burst_size, shipped_prompts
from pytest_sparkperf.core.prompts.verses import verse_prompt
from pytest_sparkperf.core.random_words import Draw, one_token_words, random_text
from pytest_sparkperf.core.workload import fit_prompts, workload_digest
from pytest_sparkperf.experiment.tokens import ServerTokenizer, server_tokenizer

# Texts to continue a prompt with that must be longer than the shipped ones.
_MATERIAL = 32
# Texts whose tokens random prompts are drawn from: some 1,000 different words.
_VOCABULARY = 16
# The lengths to which benchmarks of the field cut ShareGPT: the least of each, and the most.
_LEAST_TOKENS, _MOST_PROMPT_TOKENS, _MOST_TOKENS = 4, 1024, 2048


def load_digest(load: Load) -> str:
    """Return the digest that identifies a load in baselines, the same on every server.

    Raises ConfigError for a file that cannot be read.
    """
    if load.dataset == RANDOM:
        return workload_digest(load, [Prompt(RANDOM, "")])
    if load.dataset is not None and is_file(load.dataset):
        return workload_digest(load, [Prompt("file", dataset_digest(Path(load.dataset)))])
    return workload_digest(load, own_prompts(read_own_files(load), _own_prompts(load)))


def check_dataset(load: Load) -> None:
    """Raise ConfigError where a file of a load cannot be used, before any server starts."""
    read_own_files(load)
    if load.dataset is None or not is_file(load.dataset):
        return
    dataset = read_dataset(Path(load.dataset))
    if load.endpoint == "completions":
        talk = next((row.prompt.name for row in dataset.rows if row.prompt.history), None)
        if talk is not None:
            raise ConfigError(
                f"{dataset.name}: {talk} holds a conversation, and completions send one text: use "
                "endpoint='chat'"
            )
    if len(dataset.rows) < _count(load):
        raise _too_few(dataset, len(dataset.rows), _count(load))


def prompts_for(server: Server, load: Load) -> tuple[Prompt, ...]:
    """Return the prompts of a load as this server gets them; raises ServerError, ConfigError."""
    files = read_own_files(load)
    if files.conversations:
        return own_prompts(files, shipped_prompts(_count(load)))
    return own_prompts(files, _fitted_prompts(server, load))


def _fitted_prompts(server: Server, load: Load) -> tuple[Prompt, ...]:
    from_file = load.dataset is not None and is_file(load.dataset)
    if load.prompt_tokens is None and not load.depth and not from_file:
        return _own_prompts(load)
    with server_tokenizer(server, load) as tokenizer:
        if from_file:
            return file_prompts(load, tokenizer)
        if load.dataset == RANDOM:
            return random_prompts(load, tokenizer)
        prompts = _own_prompts(load)
        if load.prompt_tokens is not None:
            counting = _counting(load, tokenizer)
            prompts = fit_prompts(prompts, load.prompt_tokens, counting, shipped_prompts(_MATERIAL))
        return tuple(_in_context(load, tokenizer, prompts))


def _in_context(load: Load, tokenizer: ServerTokenizer, prompts: Sequence[Prompt]) -> Iterator[Prompt]:
    """Yield prompts behind contexts of shipped texts that begin differently each."""
    material = shipped_prompts(max(_MATERIAL, len(prompts)))
    for number, prompt in enumerate(prompts):
        turned = (*material[number + 1 :], *material[: number + 1])
        yield _behind(load, tokenizer, prompt, context_text(turned)) if load.depth else prompt


def _behind(
    load: Load, tokenizer: ServerTokenizer, prompt: Prompt, make: Callable[[int, Callable[[str], int]], str]
) -> Prompt:
    return fit_context(prompt, load.depth, lambda one: tokenizer.count(_as_sent(load, one)), make)


def _own_prompts(load: Load) -> tuple[Prompt, ...]:
    """Return prompts that need no server to be made."""
    if load.dataset == SONNET:
        count = _count(load)
        return tuple(verse_prompt(number, _draws(load, number).randrange) for number in range(count))
    return shipped_prompts(_count(load))


def random_prompts(load: Load, tokenizer: ServerTokenizer, count: int | None = None) -> tuple[Prompt, ...]:
    """Return prompts of random tokens, all different and all of exactly the load's length."""
    assert load.prompt_tokens is not None, "refused by the mark"
    texts = [text for prompt in shipped_prompts(_VOCABULARY) for text in tokenizer.texts(prompt.text)]
    words = one_token_words(texts)
    prompts = []
    for number in range(count or _count(load)):
        draw = _draws(load, number).randrange
        text = random_text(words, load.prompt_tokens, _counting(load, tokenizer), draw)
        prompt = Prompt(f"random-{number}", text)
        if load.depth:
            make = partial(_random_context, words, draw)
            prompt = _behind(load, tokenizer, prompt, make)
        prompts.append(prompt)
    return tuple(prompts)


def _random_context(words: Sequence[str], draw: Draw, tokens: int, count: Callable[[str], int]) -> str:
    return random_text(words, tokens, count, draw)


def file_prompts(load: Load, tokenizer: ServerTokenizer) -> tuple[Prompt, ...]:
    """Return prompts of the load's file, drawn by its seed; raises ConfigError where it holds too few."""
    assert load.dataset is not None
    dataset = read_dataset(Path(load.dataset))
    count = _count(load)
    order = list(range(len(dataset.rows)))
    _draws(load, 0).shuffle(order)
    drawn: list[Prompt] = []
    for prompt in _usable([dataset.rows[index] for index in order], load, tokenizer):
        drawn.append(prompt)
        if len(drawn) == count:
            return tuple(drawn)
    raise _too_few(dataset, len(drawn), count)


def _usable(rows: list[Row], load: Load, tokenizer: ServerTokenizer) -> Iterator[Prompt]:
    """Yield the prompts of rows; those with an answer of their own as benchmarks of the field take them."""
    for row in rows:
        if row.answer is None:
            yield row.prompt
            continue
        asked = tokenizer.count_text(row.prompt.text)
        answered = tokenizer.count_text(row.answer) if load.own_lengths else load.output_tokens
        short = asked < _LEAST_TOKENS or (load.own_lengths and answered < _LEAST_TOKENS)
        if not short and asked <= _MOST_PROMPT_TOKENS and asked + answered <= _MOST_TOKENS:
            yield replace(row.prompt, output_tokens=answered)


def _too_few(dataset: Dataset, found: int, needed: int) -> ConfigError:
    return ConfigError(
        f"{dataset.name} holds {found} prompts that can be used, and this load sends {needed} different "
        "ones: add some, or lower concurrency"
    )


def _count(load: Load) -> int:
    """Return how many different prompts a load has: one per request, up to as many as are shipped."""
    return burst_size(min(load.requests or load.concurrency, MAX_CONCURRENCY))


def _draws(load: Load, number: int) -> random.Random:
    """Return the random numbers of one prompt: a larger burst continues a smaller one."""
    return random.Random(f"{load.seed}-{number}")


def _counting(load: Load, tokenizer: ServerTokenizer) -> Callable[[str], int]:
    return lambda text: tokenizer.count(_as_sent(load, Prompt("", text)))


def _as_sent(load: Load, prompt: Prompt) -> Prompt:
    return numbered(prompt, 0) if is_numbered(load) else prompt
