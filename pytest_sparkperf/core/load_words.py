"""The keywords of a load, in a mark or a workload: what does not go together, and the load they make."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pytest_sparkperf.core.dataset import LINES_ENDING, SHAREGPT_ENDING, is_file
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.kinds import COUNT, POSITIVE, did_you_mean
from pytest_sparkperf.core.load import MADE_DATASETS, RANDOM, Load
from pytest_sparkperf.core.longrun import LEAST_SEGMENTS, requests_needed
from pytest_sparkperf.core.prompts import MAX_CONCURRENCY


def expanded(given: Mapping[str, Any], workloads: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return keywords with those of the workload that they name in its place; others are left for a fault."""
    name = given.get("workload")
    if not isinstance(name, str) or name not in workloads:
        return dict(given)
    return {**workloads[name], **{key: value for key, value in given.items() if key != "workload"}}


def workload_faults(
    given: Mapping[str, Any], workloads: Mapping[str, Mapping[str, Any]], load_words: Collection[str]
) -> Iterator[str]:
    """Yield what is wrong with the workload that keywords name."""
    name = given.get("workload")
    if not isinstance(name, str):
        return
    inline = [word for word in given if word in load_words and word != "workload"]
    if inline:
        yield f"workload and {', '.join(inline)} both describe the load; keep one or the other"
    if name not in workloads:
        near = did_you_mean(name, workloads) or ";"
        there = f"workloads are {', '.join(workloads)}" if workloads else "there are no workloads"
        yield f"workload {name!r} is not known{near} {there}; describe it in sparkperf.yaml"


def make_load(words: Mapping[str, Any]) -> Load:
    """Return the load of keywords that have no fault."""
    given = dict(words)
    for name in ("body", "sampling", "slo"):
        if isinstance(given.get(name), Mapping):
            given[name] = FrozenMap(given[name])
    given["own_lengths"] = is_file(given.get("dataset", "")) and "output_tokens" not in given
    if given.get("request_rate") == math.inf:
        # All at once: a burst, or where their number is capped a closed loop that begins at once.
        del given["request_rate"]
        if "concurrency" not in given:
            given["concurrency"] = given.pop("requests")
    elif "request_rate" in given and "concurrency" not in given:
        given |= {"capped": False, "concurrency": min(given["requests"], MAX_CONCURRENCY)}
    return Load(**given)


def load_faults(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what does not go together; values of the wrong kind are passed over."""
    yield from _endpoint_faults(given)
    yield from _dataset_faults(given)
    yield from _run_faults(given)
    concurrency = given.get("concurrency")
    if isinstance(concurrency, int) and concurrency > MAX_CONCURRENCY:
        yield f"concurrency={concurrency} is more than the {MAX_CONCURRENCY} that one client sends; lower it"


def _endpoint_faults(given: Mapping[str, Any]) -> Iterator[str]:
    if given.get("endpoint") == "completions" and given.get("thinking") is True:
        yield "thinking=True needs endpoint='chat': completions send the prompt as it is"
    if given.get("endpoint") == "completions" and "system_prompt" in given:
        yield "system_prompt needs endpoint='chat': completions send the prompt as it is"
    for name in ("messages", "tools"):
        if name in given and given.get("endpoint") == "completions":
            yield f"{name} need endpoint='chat': completions send one text"
    for name in ("dataset", "prompt_tokens", "depth", "system_prompt"):
        if "messages" in given and name in given:
            yield f"messages and {name} both say what is sent; keep one of them"


def _run_faults(given: Mapping[str, Any]) -> Iterator[str]:
    requests, rate = given.get("requests"), given.get("request_rate")
    if "burstiness" in given and (rate is None or rate == math.inf):
        yield "burstiness needs a request_rate that is finite: it is the shape of the gaps between requests"
    if rate is not None and requests is None:
        yield "request_rate needs requests: say how many are sent, such as requests=200"
    if requests is None or not COUNT.accepts(requests):
        return
    if given.get("prefix_cache") == "warm":
        yield "prefix_cache='warm' is for bursts in rounds, not for a run of requests; leave requests out"
    kinds = {"request_rate": POSITIVE, "concurrency": COUNT}
    if any(
        name in given and given[name] != math.inf and not kind.accepts(given[name])
        for name, kind in kinds.items()
    ):
        return
    load = make_load({name: given[name] for name in ("requests", *kinds) if name in given})
    if load.is_run and requests < requests_needed(load):
        yield (
            f"requests={requests} leaves too little between ramp and drain for {LEAST_SEGMENTS} segments: "
            f"give {requests_needed(load)} or more, or leave requests out to measure bursts in rounds"
        )
    elif not load.is_run and load.concurrency > MAX_CONCURRENCY:
        yield f"requests={requests} at once are more than {MAX_CONCURRENCY}, the most that one client sends"


def _dataset_faults(given: Mapping[str, Any]) -> Iterator[str]:
    dataset = given.get("dataset")
    if dataset is None or not isinstance(dataset, str):
        if "seed" in given:
            yield "seed needs dataset: the shipped prompts are always the same; name one, or leave seed out"
        return
    if is_file(dataset):
        if given.get("depth"):
            yield "depth does not go with a file, whose prompts may have turns of their own; leave it out"
        if "prompt_tokens" in given:
            yield "prompt_tokens does not go with a file, whose prompts have their own lengths; leave it out"
    elif dataset not in MADE_DATASETS:
        near = did_you_mean(dataset, MADE_DATASETS) or ";"
        yield (
            f"dataset={dataset!r} is not a dataset{near} valid are {', '.join(MADE_DATASETS)}, and files "
            f"that end in {SHAREGPT_ENDING} (ShareGPT) or {LINES_ENDING} (a prompt a line)"
        )
    elif dataset == RANDOM and "prompt_tokens" not in given:
        yield "dataset='random' needs prompt_tokens: say how long the prompts are, such as prompt_tokens=1000"
