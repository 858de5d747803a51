"""From the answers of all arms to a judged line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from equivalence_data import answer, calls, generation

from pytest_sparkperf.core.cachefacts import CacheFacts
from pytest_sparkperf.core.compared import (
    CONVERSATION,
    Compared,
    Conversation,
    after_name,
    compared_line,
    differing,
    warm_line,
)
from pytest_sparkperf.core.equivalence import Generation
from pytest_sparkperf.core.logprobs import Choice
from pytest_sparkperf.core.question import Question, user_message
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.tool_set import WEATHER
from pytest_sparkperf.core.validity import BUFFERED, ERROR_OBJECT, REJECTED, TOKEN_COUNT_MISMATCH

QUESTION = Question("p", user_message("Hi"))
TOOL_QUESTION = Question("tool", user_message("Hi", tools=[WEATHER]))
SAME = generation([1, 2, 3])
OTHER = generation([1, 2, 4])


def failed(reason: str, error: str = "words") -> Generation:
    return Generation(RequestResult(valid=False, reason=reason, error=error, prompt_name="p"))


def rows(
    on: Generation | None,
    *,
    off: Generation | None = SAME,
    again: Generation | None = SAME,
    question: Question = QUESTION,
    **fields: Any,
) -> Compared:
    return Compared([question], (off,), (again,), (on,), **fields)


def test_equal_answers_pass() -> None:
    line = compared_line("plain", rows(SAME))

    assert (line.outcome, line.count("equal")) == ("PASS", 1)


def test_gaps_come_from_the_repetitions_of_both_arms() -> None:
    off_again = generation([1, 2, 3], {2: Choice("a", {"a": -0.7, "b": -0.71})})
    on_again = generation([1, 2, 4], {2: Choice("b", {"a": -0.71, "b": -0.7})})

    line = compared_line("plain", rows(OTHER, again=off_again, probes={0: on_again}))

    (item,) = line.items
    assert item.subject is not None
    assert item.subject.kind == "near_tie"
    assert item.on_stable is True
    assert item.systematic
    assert line.outcome == "PASS"


def test_an_arm_that_does_not_repeat_itself_is_not_stable() -> None:
    line = compared_line("plain", rows(OTHER, probes={0: SAME}))

    assert line.items[0].on_stable is False
    assert line.outcome == "FAIL"


def test_a_second_start_that_differs_as_much_makes_it_a_launch() -> None:
    line = compared_line("plain", rows(OTHER, launched=(generation([9]),)))

    assert (line.outcome, line.count("launch")) == ("PASS", 1)


def test_answers_that_are_unfit_for_timing_are_compared_all_the_same() -> None:
    lumps = replace(SAME, result=replace(SAME.result, valid=False, reason=BUFFERED))

    assert compared_line("plain", rows(lumps, off=lumps, again=lumps)).outcome == "PASS"


@pytest.mark.parametrize(
    ("ids", "usage", "name"), [((1, 2), 3, "lost_delta: words"), ((1, 2, 3, 3), 3, "doubled_delta: words")]
)
def test_ids_that_disagree_with_usage_are_a_lost_or_doubled_delta(
    ids: tuple[int, ...], usage: int, name: str
) -> None:
    result = replace(failed(TOKEN_COUNT_MISMATCH).result, token_ids=ids, output_tokens=usage)

    line = compared_line("plain", rows(Generation(result)))

    assert line.outcome == "FAIL"
    assert [str(found) for found in line.items[0].on_faults] == [name]


def test_a_fault_of_the_server_with_speculation_is_named_and_fails() -> None:
    line = compared_line("plain", rows(failed(ERROR_OBJECT)))

    assert (line.outcome, line.reason) == (
        "FAIL",
        "0 of 1 answers valid, off 1 of 1 (p: error_object: words)",
    )


def test_answers_that_a_dead_server_could_not_give_are_named() -> None:
    both = Compared([QUESTION, QUESTION], (SAME, SAME), (SAME, SAME), (SAME, None))

    line = compared_line("plain", both)

    assert (line.outcome, line.reason) == (
        "FAIL",
        "1 of 2 answers valid, off 2 of 2 (p: engine_death: not asked any more)",
    )


def test_a_line_that_a_dead_server_was_not_asked_is_not_judged() -> None:
    line = compared_line("plain", rows(None))

    assert (line.outcome, line.reason) == (None, "the server with speculation had died before")


def test_a_fault_of_the_server_is_not_excused_by_another_of_off() -> None:
    bad = generation([1, 3], tool_calls=calls(("get_weather", '{"city": "Rome')))

    line = compared_line("tools", rows(failed(ERROR_OBJECT), off=bad, again=bad, question=TOOL_QUESTION))

    assert line.outcome == "FAIL"


@pytest.mark.parametrize(
    ("off", "again", "why"),
    [
        (failed(ERROR_OBJECT), SAME, " (error_object): words"),
        (SAME, failed(ERROR_OBJECT, ""), " (error_object): no words"),
        (None, SAME, ": it was dead by then"),
        (failed(REJECTED), SAME, " (rejected): words"),
    ],
)
def test_without_an_answer_of_off_there_is_nothing_to_compare_with(
    off: Generation | None, again: Generation | None, why: str
) -> None:
    line = compared_line("plain", rows(SAME, off=off, again=again))

    assert (line.outcome, line.reason) == ("ERROR", f"off did not answer p{why}")


def test_what_both_servers_refuse_is_not_judged() -> None:
    refused = failed(REJECTED, "no grammar here")

    line = compared_line("structured output", rows(refused, off=refused, again=refused))

    assert (line.outcome, line.reason) == (None, "both servers refuse it (no grammar here)")


def test_what_both_refuse_among_others_is_left_out_and_said() -> None:
    refused = failed(REJECTED)
    both = Compared([QUESTION, QUESTION], (refused, SAME), (refused, SAME), (refused, SAME))

    line = compared_line("plain", both)

    assert (len(line.items), line.outcome, line.reason) == (1, "PASS", "1 refused by both servers")


def test_faults_of_an_answer_count_against_those_of_off() -> None:
    good = generation([1, 2], tool_calls=calls(("get_weather", '{"city": "Rome"}')))
    bad = generation([1, 3], tool_calls=calls(("get_weather", '{"city": "Rome')))

    worse = compared_line(
        "tool calls", rows(bad, off=good, again=good, question=TOOL_QUESTION, by_value=True)
    )
    alike = compared_line("tool calls", rows(bad, off=bad, again=bad, question=TOOL_QUESTION, by_value=True))

    assert worse.outcome == "FAIL"
    assert worse.items[0].on_faults[0].name == "broken_json"
    assert alike.outcome == "PASS"


def test_only_answers_that_are_there_on_both_sides_and_differ_are_asked_again() -> None:
    off = (SAME, SAME, SAME, None, SAME)
    on = (SAME, OTHER, None, OTHER, failed(ERROR_OBJECT))

    assert differing(off, on, by_value=False) == (1,)


# ---------------------------------------------------------------- the warm line


def talk(
    answers: Sequence[Generation | None] = (SAME,), *, hits: float | None = 64, enabled: bool | None = True
) -> Conversation:
    return Conversation((QUESTION,), tuple(answers), "salt", CacheFacts(enabled, 144), hits)


def test_a_warm_conversation_is_judged() -> None:
    line = warm_line((talk(), talk(), talk([OTHER])), {}, None)

    assert (line.name, line.outcome) == (CONVERSATION, "FAIL")
    assert warm_line((talk(), talk(), talk()), {}, None).outcome == "PASS"


@pytest.mark.parametrize(
    ("talks", "outcome", "reason"),
    [
        ((talk(enabled=False), talk(), talk()), None, "prefix caching is off on off"),
        ((talk(), talk(), talk(enabled=False, hits=0)), None, "prefix caching is off on on"),
        (
            (talk(), talk(), talk(hits=0)),
            "ERROR",
            (
                "no cache hit on on in the conversation, so it was not warm: a block has 144 tokens, and the "
                "prompts must be longer than one; start the servers with a smaller --block-size"
            ),
        ),
        (
            (talk(), talk(hits=None), talk()),
            "ERROR",
            (
                "off counts no prefix cache hits and reports no cached tokens, so nobody knows whether the "
                "conversation was warm; start it with --enable-prompt-tokens-details"
            ),
        ),
    ],
)
def test_a_conversation_is_judged_only_where_the_cache_was_hit(
    talks: tuple[Conversation, Conversation, Conversation], outcome: str | None, reason: str
) -> None:
    line = warm_line(talks, {}, None)

    assert (line.outcome, line.reason) == (outcome, reason)


def test_a_server_that_died_in_the_conversation_fails_it() -> None:
    off, on = talk([SAME, SAME]), talk([SAME, None], hits=None)
    off, on = (replace(one, questions=(QUESTION, QUESTION)) for one in (off, on))

    line = warm_line((off, off, on), {}, None)

    assert line.outcome == "FAIL"


def test_sets_asked_again_have_a_name_of_their_own() -> None:
    assert after_name("plain") == "plain, after the conversation"


def test_answers_are_told_apart_by_channel() -> None:
    off, on = (Generation(answer("42", reasoning=text)) for text in ("6*7", "7*6"))

    assert compared_line("plain, thinking", rows(on, off=off, again=off)).outcome == "FAIL"
