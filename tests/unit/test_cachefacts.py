"""What metrics tell about the prefix cache."""

from __future__ import annotations

import pytest

from pytest_sparkperf.core.cachefacts import CacheFacts, cache_facts
from pytest_sparkperf.core.exposition import Scrape, parse_exposition

# As vLLM 0.24 on the H200 shows it, most labels left out.
SIZED = 'vllm:cache_config_info{{kv_cache_size_tokens="{}",engine="{}"}} 1.0\n'
LINE = 'vllm:cache_config_info{{block_size="{}",enable_prefix_caching="{}",engine="{}"}} 1.0\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LINE.format(144, "False", 0), CacheFacts(False, 144)),
        (LINE.format(16, "True", 0), CacheFacts(True, 16)),
        (LINE.format(16, "True", 0) + LINE.format(32, "True", 1), CacheFacts(True, 32)),
        (LINE.format(16, "True", 0) + LINE.format(16, "False", 1), CacheFacts(False, 16)),
        (LINE.format("None", "True", 0), CacheFacts(True, None)),
        (SIZED.format(853407, 0) + SIZED.format(853406, 1), CacheFacts(None, None, (853407, 853406))),
        (SIZED.format("None", 0), CacheFacts()),
        ("vllm:num_requests_running 0\n", CacheFacts()),
    ],
)
def test_labels_tell_whether_caching_is_on_and_how_long_a_block_is(text: str, expected: CacheFacts) -> None:
    assert cache_facts(parse_exposition(text)) == expected


def test_no_scrape_tells_nothing() -> None:
    assert cache_facts(None) == cache_facts(Scrape()) == CacheFacts()
