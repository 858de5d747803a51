from __future__ import annotations

import json

import pytest

from pytest_sparkperf.core.fingerprint import Surroundings, difference_text, differences, facts_of, public
from pytest_sparkperf.core.frozen import thaw
from pytest_sparkperf.core.gpu import GpuState

GPU = GpuState(
    "NVIDIA GB10",
    "580.95.05",
    power_limit_w=140,
    temperature_c=61,
    sm_clock_mhz=2400,
    throttled=("hardware slowdown",),
)
AROUND = Surroundings("Ubuntu 24.04", "6.17.0", "performance", None, True, "580.95.05", "13.0", (GPU,))


def test_facts_are_kept_most_suspect_first_without_what_is_private_or_unknown() -> None:
    server = {
        "version": "0.24.0",
        "model": "/home/alice/models/qwen",
        "k": 3,
        "speculative_method": "mtp",
        "url": "http://10.0.0.5:8000",
        "name": "qwen36 k=3",
        "max_model_len": None,
    }
    arguments = {
        "moe_backend": "marlin",
        "api-key": "sk-example-000",
        "hf_token": "hf_EXAMPLEEXAMPLEEXAMPLE",
        "host": "spark7",
        "port": 8001,
        "download-dir": "/home/alice/cache",
        "max-num-seqs": 32,
    }
    hooked = {
        "rack": "B",
        "hostname": "spark7",
        "serial": "1653724066763",
        "gpu_uuid": "GPU-3cb2",
        "user": "alice",
    }

    facts = facts_of(server, arguments, AROUND, hooked=hooked)

    assert thaw(facts) == {
        "vllm": "0.24.0",
        "model": "~/models/qwen",
        "k": 3,
        "speculator": "mtp",
        "arguments": {"download-dir": "~/cache", "max-num-seqs": 32, "moe-backend": "marlin"},
        "power_limit_w": 140,
        "throttled": ["hardware slowdown"],
        "cuda": "13.0",
        "driver": "580.95.05",
        "sm_clock_mhz": 2400,
        "temperature_c": 61,
        "cpu_governor": "performance",
        "kernel": "6.17.0",
        "os": "Ubuntu 24.04",
        "container": True,
        "rack": "B",
    }
    assert list(facts)[:5] == ["vllm", "model", "k", "speculator", "arguments"]
    text = json.dumps(thaw(facts))
    assert not [
        word
        for word in ("alice", "spark7", "sk-", "hf_", "1653724066763", "GPU-3cb2", "10.0.0.5")
        if word in text
    ]


def test_a_machine_that_cannot_be_seen_has_no_facts_of_this_one() -> None:
    assert thaw(facts_of({"version": "0.24.0"}, {}, Surroundings())) == {"vllm": "0.24.0"}


def test_what_this_machine_shows_wins_over_what_the_servers_page_says_of_its_own() -> None:
    page = {
        "version": "0.24.0",
        "torch": "2.11.0+cu130",
        "driver": "580.1",
        "os": "Ubuntu",
        "revision": "925d7be",
    }

    remote, here = facts_of(page, {}, Surroundings()), facts_of(page, {}, AROUND)

    assert thaw(remote) == {
        "vllm": "0.24.0",
        "revision": "925d7be",
        "torch": "2.11.0+cu130",
        "driver": "580.1",
        "os": "Ubuntu",
    }
    assert (here["driver"], here["os"], here["torch"]) == ("580.95.05", "Ubuntu 24.04", "2.11.0+cu130")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pw@host/v1", "http://***@host/v1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("/root/.cache/x", "~/.cache/x"),
        ("/Users/bob", "~"),
        ("/data/home/x", "/data/home/x"),
        ("hf_EXAMPLEEXAMPLE in text", "*** in text"),
        ("nvidia/Qwen3.6-35B", "nvidia/Qwen3.6-35B"),
    ],
)
def test_values_lose_what_is_private(text: str, shown: str) -> None:
    assert public(text) == shown
    assert public([text, {"a": text, "api_key": 1}]) == [shown, {"a": shown}]


def test_differences_are_named_most_likely_cause_first() -> None:
    then = {
        "temperature_c": 50,
        "arguments": {"moe-backend": "marlin", "max-num-seqs": 32, "enforce-eager": True},
        "vllm": "0.24.0",
        "driver": "580.95.05",
        "os": "Ubuntu 24.04",
        "rack": "A",
        "power_limit_w": 600.0,
        "only then": 1,
    }
    now = {
        "vllm": "0.26.1",
        "arguments": {"moe-backend": "triton", "max-num-seqs": 32, "hf-overrides": {"a": [1, 2]}},
        "temperature_c": 62,
        "driver": "580.126.09",
        "os": "Ubuntu 24.04",
        "rack": "B",
        "power_limit_w": 450.0,
        "only now": 2,
    }

    assert differences(then, now) == (
        "vLLM 0.24.0 -> 0.26.1",
        "enforce-eager true -> default",
        "hf-overrides default -> {a: [1, 2]}",
        "moe-backend marlin -> triton",
        "power limit 600 -> 450 W",
        "driver 580.95.05 -> 580.126.09",
        "GPU 12 C warmer",
        "rack A -> B",
    )


def test_small_changes_of_heat_and_clock_are_no_difference() -> None:
    then = {"temperature_c": 60, "sm_clock_mhz": 2400}

    assert differences(then, {"temperature_c": 62, "sm_clock_mhz": 2350}) == ()
    assert differences(then, {"temperature_c": 51, "sm_clock_mhz": 1900}) == (
        "SM clock 2400 -> 1900 MHz",
        "GPU 9 C colder",
    )


def test_facts_of_a_wrong_kind_are_passed_over() -> None:
    assert (
        differences(
            {"temperature_c": "hot", "arguments": 1, "sm_clock_mhz": []},
            {"temperature_c": 1, "arguments": {}, "sm_clock_mhz": 5},
        )
        == ()
    )


def test_differences_become_a_sentence() -> None:
    assert difference_text(("vLLM 0.24.0 -> 0.26.1", "GPU 12 C warmer")) == (
        "differs from the baseline, most likely cause first: vLLM 0.24.0 -> 0.26.1; GPU 12 C warmer"
    )
    assert difference_text(()) == "no recorded fact differs from the baseline"
