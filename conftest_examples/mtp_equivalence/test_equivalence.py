"""Is the output with draft tokens the same as without: text, tool calls, a conversation, your own files?"""

from pytest_sparkperf import sparkperf

# Shorter than the default of 512 tokens, without thinking and without forced calls and schemas, so that it
# also runs on a small machine; same_output=True asks it all.
SHORT = {"max_tokens": 64, "thinking": False, "guided": False}


@sparkperf(
    k=3,
    against={"k": 0},
    same_output=SHORT,
    messages="messages.json",  # conversations of your own, and the tools they may call
    tools="tools.json",
    output_tokens=32,
    max_rounds=3,
)
def test_output_is_the_same(sparkperf_result):
    """The verdict is same_output; the lines below it say what was compared, and where answers part."""
    assert sparkperf_result.against is not None
