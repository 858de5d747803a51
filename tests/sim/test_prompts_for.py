"""The prompts of a load as one server gets them: exact lengths, and what the seed decides."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from simulator_process import StartSimulator

from pytest_sparkperf.adapters.client import GenerationRequest, stream_request
from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import Server, attach_server
from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.core.load import Endpoint, Load
from pytest_sparkperf.core.prompts import Prompt
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.core.workload import request_body
from pytest_sparkperf.experiment.prompts import check_dataset, load_digest, prompts_for

FLAGS = ("--unpaced", "--jit-s", "0")
SHAREGPT = str(Path(__file__).parents[1] / "data" / "sharegpt_small.json")


def server_at(url: str) -> Server:
    return attach_server(make_variant(Target("rented", "attach", urls=((None, url),))))


def counted(server: Server, load: Load, prompts: tuple[Prompt, ...]) -> list[int | None]:
    """Return what usage says of each prompt."""

    async def send() -> list[int | None]:
        async with open_async_client(server.url) as client:
            bodies = [request_body(load, prompt, model=server.model, salt=None) for prompt in prompts]
            requests = [GenerationRequest(load.endpoint, body) for body in bodies]
            return [(await stream_request(client, request)).prompt_tokens for request in requests]

    return asyncio.run(send())


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
@pytest.mark.parametrize("prompt_tokens", [32, 512, 1500])
def test_random_prompts_have_exactly_the_length_asked_for(
    simulator: StartSimulator, endpoint: Endpoint, prompt_tokens: int
) -> None:
    server = server_at(simulator(*FLAGS).url)
    load = Load(endpoint, "random", prompt_tokens=prompt_tokens, output_tokens=1, concurrency=8)

    prompts = prompts_for(server, load)

    assert counted(server, load, prompts) == [prompt_tokens] * 8
    assert len({prompt.text for prompt in prompts}) == 8
    assert prompts[0].name == "random-0"


def test_a_seed_gives_other_prompts_and_a_larger_burst_continues_a_smaller_one(
    simulator: StartSimulator,
) -> None:
    server = server_at(simulator(*FLAGS).url)
    loads = [
        Load(dataset="random", seed=seed, prompt_tokens=64, concurrency=concurrency)
        for seed, concurrency in ((0, 4), (0, 6), (1, 4))
    ]

    first, larger, other = (prompts_for(server, load) for load in loads)

    assert larger[:4] == first
    assert not {prompt.text for prompt in first} & {prompt.text for prompt in other}
    assert len({load_digest(load) for load in loads}) == 3


def test_verses_are_fitted_to_a_length(simulator: StartSimulator) -> None:
    server = server_at(simulator(*FLAGS).url)
    load = Load(dataset="sonnet", prompt_tokens=200, output_tokens=1)

    prompts = prompts_for(server, load)

    assert [prompt.name for prompt in prompts] == ["sonnet-0", "sonnet-1", "sonnet-2", "sonnet-3"]
    assert all(count is not None and 190 <= count <= 200 for count in counted(server, load, prompts))


def test_conversations_are_asked_for_answers_of_their_own_length(simulator: StartSimulator) -> None:
    server = server_at(simulator(*FLAGS).url)
    load = Load(dataset=SHAREGPT, own_lengths=True, concurrency=8)

    prompts = prompts_for(server, load)

    lengths = [prompt.output_tokens for prompt in prompts]
    assert len({prompt.name for prompt in prompts}) == 8
    assert all(length is not None and length >= 4 for length in lengths)
    assert len(set(lengths)) > 4
    # "Hi" has one token, fewer than anyone measures with.
    assert "sharegpt-13" not in {prompt.name for prompt in prompts_for(server, replace(load, concurrency=11))}


def test_a_seed_draws_other_conversations(simulator: StartSimulator) -> None:
    server = server_at(simulator(*FLAGS).url)
    loads = [Load(dataset=SHAREGPT, seed=seed) for seed in (0, 0, 1)]

    first, again, other = (prompts_for(server, load) for load in loads)

    assert first == again
    assert first != other
    assert {prompt.output_tokens for prompt in first} == {256}


def test_too_few_conversations_are_refused(simulator: StartSimulator) -> None:
    server = server_at(simulator(*FLAGS).url)
    text = (
        "sharegpt_small.json holds {} prompts that can be used, and this load sends {} different ones: add "
        "some, or lower concurrency"
    )

    with pytest.raises(ConfigError) as caught:
        prompts_for(server, Load(dataset=SHAREGPT, concurrency=12))
    assert str(caught.value) == text.format(11, 12)
    with pytest.raises(ConfigError) as caught:
        check_dataset(Load(dataset=SHAREGPT, concurrency=13))
    assert str(caught.value) == text.format(12, 13)


def test_a_conversation_is_no_completion(tmp_path: Path) -> None:
    turns = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
    path = tmp_path / "own.jsonl"
    path.write_text((json.dumps({"messages": turns}) + "\n") * 4)

    with pytest.raises(ConfigError) as caught:
        check_dataset(Load("completions", str(path)))

    assert str(caught.value) == (
        "own.jsonl: line-1 holds a conversation, and completions send one text: use endpoint='chat'"
    )


def test_a_digest_follows_the_content_of_a_file_and_not_its_place(tmp_path: Path) -> None:
    copies = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in copies:
        path.write_bytes(Path(SHAREGPT).read_bytes())
    same = {load_digest(Load(dataset=str(path))) for path in copies}
    copies[0].write_text(copies[0].read_text().replace("bread", "cake"))

    assert len(same) == 1
    assert load_digest(Load(dataset=str(copies[0]))) not in same
    assert load_digest(Load(dataset=SHAREGPT, own_lengths=True)) not in same
