from __future__ import annotations

from pytest_sparkperf.sim.prefix_cache import PrefixCache

PROMPT = list(range(100))


def test_an_unknown_prompt_has_no_cached_tokens() -> None:
    assert PrefixCache(10_000).cached_tokens(PROMPT, "") == 0


def test_a_known_prompt_is_cached_in_whole_blocks() -> None:
    cache = PrefixCache(10_000)
    cache.store(PROMPT, "")

    assert cache.cached_tokens(PROMPT, "") == 96


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(10_000)
    cache.store(PROMPT[:96], "")

    assert cache.cached_tokens(PROMPT[:96], "") == 80


def test_a_shared_beginning_is_cached_up_to_where_it_ends() -> None:
    cache = PrefixCache(10_000)
    cache.store(PROMPT, "")

    assert cache.cached_tokens([*PROMPT[:40], -1, *PROMPT[41:]], "") == 32
    assert cache.cached_tokens([-1, *PROMPT[1:]], "") == 0


def test_another_salt_shares_nothing() -> None:
    cache = PrefixCache(10_000)
    cache.store(PROMPT, "one")

    assert cache.cached_tokens(PROMPT, "two") == 0
    assert cache.cached_tokens(PROMPT, "one") == 96


def test_a_full_cache_drops_what_was_used_longest_ago() -> None:
    cache = PrefixCache(capacity_tokens=96)
    cache.store(PROMPT[:32], "old")
    cache.store(PROMPT[:32], "used")
    cache.store(PROMPT[:32], "mid")
    assert cache.cached_tokens(PROMPT, "used") == 32
    cache.store(PROMPT[:64], "new")

    assert cache.cached_tokens(PROMPT, "old") == 0
    assert cache.cached_tokens(PROMPT, "used") == 32
    assert cache.cached_tokens(PROMPT, "new") == 64
