"""Is the output with speculative decoding the same as without? Asks both servers, and off twice as control.

Only one server needs to be up at a time: off answers everything twice, the second time telling its
candidates; then on answers, and what differs it answers once more with candidates. A second start of off is
asked for only when a divergence would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from pytest_sparkperf.core.acceptance import Acceptance, acceptance_between
from pytest_sparkperf.core.cachefacts import cache_facts
from pytest_sparkperf.core.compared import (
    CONVERSATION,
    Compared,
    Conversation,
    after_name,
    compared_line,
    differing,
    is_usable,
    warm_line,
)
from pytest_sparkperf.core.conversation_set import opening
from pytest_sparkperf.core.equivalence import Generation
from pytest_sparkperf.core.equivalence_report import EquivalenceReport
from pytest_sparkperf.core.flags import count_flags, flag_words
from pytest_sparkperf.core.prompts import Prompt, shipped_prompts
from pytest_sparkperf.core.question import OUTPUT_TOKENS, THINKING_TOKENS, Question, plain_questions
from pytest_sparkperf.core.result import RequestResult
from pytest_sparkperf.core.same_output import Line, needs_second_start
from pytest_sparkperf.core.tool_set import forced_questions, structured_questions, tool_questions
from pytest_sparkperf.core.toolcheck import SchemaCheck
from pytest_sparkperf.experiment.answers import Answers, Asker, OpenServer, QuestionSet
from pytest_sparkperf.experiment.counters import settled_scrape

Opener = Callable[[], AbstractAsyncContextManager[OpenServer]]

# A shipped prompt has about 1,000 tokens by most tokenizers, fewer by none.
_TOKENS_PER_PART = 800
_MOST_PARTS = 8
# An answer of the conversation is a tool call or a short text.
_TALK_TOKENS = 256
# The conversation by itself is longer than several of these.
_SMALL_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """What an equivalence run asks: sets, then the conversation, then sets that may kill a server.

    ``strict`` counts near-ties as divergences; ``check`` validates against JSON schemas, None leaves it.
    """

    sets: tuple[QuestionSet, ...]
    late: tuple[QuestionSet, ...] = ()
    conversation: bool = True
    conversation_tokens: int = _TALK_TOKENS
    strict: bool = False
    check: SchemaCheck | None = None


def default_plan(
    *,
    concurrency: int = 1,
    thinking: bool = True,
    guided: bool = True,
    max_tokens: int | None = None,
    strict: bool = False,
    own: Sequence[Question] = (),
    check: SchemaCheck | None = None,
) -> Plan:
    """Return the plan of ``same_output=True``; without ``guided`` nothing that needs a grammar is asked.

    ``strict`` counts near-ties as divergences.
    """
    plain = plain_questions(max_tokens=max_tokens)
    size = max_tokens or OUTPUT_TOKENS
    sets = [QuestionSet("plain", plain, again=True)]
    if concurrency > 1:
        sets.append(QuestionSet(f"plain, {concurrency} at once", plain, concurrency))
    if thinking:
        deep = plain_questions(max_tokens=max_tokens, thinking=True)
        sets.append(QuestionSet("plain, thinking", deep))
    sets.append(QuestionSet("tool calls", tool_questions(max_tokens=size), by_value=True, again=True))
    late = [
        QuestionSet("structured output", structured_questions(), by_value=True),
        QuestionSet("forced tool calls", forced_questions(), by_value=True),
    ]
    if thinking:
        tools = tool_questions(max_tokens=max_tokens or THINKING_TOKENS, thinking=True)
        sets.append(QuestionSet("tool calls, thinking", tools, by_value=True))
        # Where a grammar begins behind the thoughts, a step may cross the boundary.
        behind = structured_questions(max_tokens=max_tokens or THINKING_TOKENS, thinking=True)
        late.insert(1, QuestionSet("structured output, thinking", behind, by_value=True))
    if own:
        sets.append(QuestionSet("own messages", tuple(own), by_value=True, again=True))
    talk = min(size, _TALK_TOKENS)
    return Plan(
        tuple(sets), tuple(late) if guided else (), conversation_tokens=talk, strict=strict, check=check
    )


@dataclass(slots=True)
class _Reference:
    """What off answered: first and again by the name of the set, and the conversation twice."""

    first: dict[str, Answers] = field(default_factory=dict)
    again: dict[str, Answers] = field(default_factory=dict)
    talk: Conversation | None = None
    talk_again: Conversation | None = None
    death: str | None = None


@dataclass(slots=True)
class _Subject:
    """What on answered by the name of the line, and once more what differed, by line and index."""

    first: dict[str, Answers] = field(default_factory=dict)
    probes: dict[str, dict[int, Generation | None]] = field(default_factory=dict)
    talk: Conversation | None = None
    acceptance: Acceptance | None = None
    death: str | None = None


@dataclass(slots=True)
class Asked:
    """What both servers answered, and a second start of off to the lines that were in doubt."""

    _plan: Plan
    _reference: _Reference
    _subject: _Subject
    _launched: dict[str, Answers] | None = None

    @property
    def in_doubt(self) -> list[str]:
        """The lines that would fail, unless a second start of off differs from the first as well."""
        return [line.name for line in self._lines if needs_second_start(line)]

    async def ask_launch(self, server: OpenServer) -> None:
        """Ask a second start of off what is in doubt."""
        self._launched = await _ask_launch(self._plan, server, self._reference, self.in_doubt)

    def report(self, names: tuple[str, str]) -> EquivalenceReport:
        """Judge what was answered; ``names`` are those of off and on."""
        reference, subject = self._reference, self._subject
        arms = zip(names, (reference.first, subject.first), strict=True)
        return EquivalenceReport(
            lines=self._lines,
            names=names,
            acceptance=subject.acceptance,
            flags={arm: flag_words(count_flags(_results(rows))) for arm, rows in arms},
            deaths=tuple(death for death in (reference.death, subject.death) if death),
            second_start=self._launched is not None,
        )

    @property
    def _lines(self) -> tuple[Line, ...]:
        return _judge(self._plan, self._reference, self._subject, self._launched or {})


async def compare_outputs(
    plan: Plan,
    off: Opener,
    on: Opener,
    second_off: Opener | None = None,
    *,
    names: tuple[str, str] = ("off", "on"),
) -> EquivalenceReport:
    """Run a plan and judge it; each opener is entered once, one after the other, the third only if needed."""
    asked = await ask_both(plan, off, on)
    if second_off is not None and asked.in_doubt:
        async with second_off() as server:
            await asked.ask_launch(server)
    return asked.report(names)


async def ask_both(plan: Plan, off: Opener, on: Opener) -> Asked:
    """Run a plan up to where a second start of off may be needed; each opener is entered once."""
    async with off() as server:
        reference = await _ask_reference(plan, server)
    async with on() as server:
        subject = await _ask_subject(plan, server, reference)
    return Asked(plan, reference, subject)


async def _ask_reference(plan: Plan, server: OpenServer) -> _Reference:
    asker, found = Asker(server), _Reference()
    for one in plan.sets:
        found.first[one.name] = await asker.ask(one)
    if plan.conversation:
        start = opening(await _material(server))
        found.talk = await asker.converse(start, max_tokens=plan.conversation_tokens)
        found.talk_again = await asker.converse(start, script=found.talk, candidates=True)
    for one in plan.sets:
        found.again[one.name] = await asker.ask(one, candidates=True)
    for one in plan.late:
        found.first[one.name] = await asker.ask(one)
        found.again[one.name] = await asker.ask(one, candidates=True)
    found.death = asker.obituary()
    return found


async def _ask_subject(plan: Plan, server: OpenServer, reference: _Reference) -> _Subject:
    asker, found = Asker(server), _Subject()
    before = await settled_scrape(server.client)
    for one in plan.sets:
        await _ask_line(asker, found, one.name, one, reference.first[one.name])
    if reference.talk is not None:
        found.talk = await asker.converse((), script=reference.talk)
        await _probe_talk(asker, found, reference.talk)
        for one in plan.sets:
            if one.again:
                await _ask_line(asker, found, after_name(one.name), one, reference.first[one.name])
    after = None if asker.death else await settled_scrape(server.client)
    found.acceptance = acceptance_between(before, after) if before and after else None
    for one in plan.late:
        await _ask_line(asker, found, one.name, one, reference.first[one.name])
    found.death = asker.obituary()
    return found


async def _ask_line(asker: Asker, found: _Subject, name: str, questions: QuestionSet, off: Answers) -> None:
    """Ask a set, and what differs from off once more, telling candidates."""
    answers = found.first[name] = await asker.ask(questions)
    different = differing(off, answers, by_value=questions.by_value)
    chosen = QuestionSet(name, tuple(questions.questions[at] for at in different), questions.concurrency)
    again = await asker.ask(chosen, candidates=True)
    found.probes[name] = dict(zip(different, again, strict=True))


async def _probe_talk(asker: Asker, found: _Subject, script: Conversation) -> None:
    assert found.talk is not None
    different = differing(script.answers, found.talk.answers, by_value=True)
    probes: dict[int, Generation | None] = {}
    for at in different:
        again = await asker.together([script.questions[at]], candidates=True, salt=found.talk.salt)
        probes[at] = again[0]
    found.probes[CONVERSATION] = probes


async def _ask_launch(
    plan: Plan, server: OpenServer, reference: _Reference, names: Sequence[str]
) -> dict[str, Answers]:
    """Ask a second start of off the sets of the lines that would fail."""
    asker = Asker(server)
    launched: dict[str, Answers] = {}
    for one in (*plan.sets, *plan.late):
        if one.name in names or after_name(one.name) in names:
            launched[one.name] = launched[after_name(one.name)] = await asker.ask(one)
    if CONVERSATION in names and reference.talk is not None:
        launched[CONVERSATION] = (await asker.converse((), script=reference.talk)).answers
    return launched


def _judge(
    plan: Plan, reference: _Reference, subject: _Subject, launched: Mapping[str, Answers]
) -> tuple[Line, ...]:
    def line(one: QuestionSet, name: str) -> Line:
        rows = Compared(
            one.questions,
            off=reference.first[one.name],
            off_again=reference.again[one.name],
            on=subject.first[name],
            probes=subject.probes.get(name, {}),
            launched=launched.get(name),
            by_value=one.by_value,
        )
        return compared_line(name, rows, plan.check, strict=plan.strict)

    lines = [line(one, one.name) for one in plan.sets]
    if reference.talk is not None and reference.talk_again is not None and subject.talk is not None:
        talks = (reference.talk, reference.talk_again, subject.talk)
        probes = subject.probes.get(CONVERSATION, {})
        lines.append(warm_line(talks, probes, launched.get(CONVERSATION), plan.check, strict=plan.strict))
        lines += [line(one, after_name(one.name)) for one in plan.sets if one.again]
    return (*lines, *(line(one, one.name) for one in plan.late))


async def _material(server: OpenServer) -> tuple[Prompt, ...]:
    """Return texts that make the conversation's beginning longer than two blocks of the prefix cache."""
    block = cache_facts(await settled_scrape(server.client)).block_tokens or 0
    parts = 0 if block <= _SMALL_BLOCK else min(_MOST_PARTS, -(-2 * block // _TOKENS_PER_PART))
    return shipped_prompts(max(parts, 1))[:parts]


def _results(rows: Mapping[str, Answers]) -> list[RequestResult]:
    return [one.result for answers in rows.values() for one in answers if one is not None and is_usable(one)]
