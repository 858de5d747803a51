"""Asks one server the questions of an equivalence run and keeps its answers, until it dies if it must."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts, record_request
from pytest_sparkperf.adapters.http import httpx
from pytest_sparkperf.adapters.logtail import fence, read_end, read_tail
from pytest_sparkperf.adapters.server import Server
from pytest_sparkperf.core.cachefacts import CACHE_HITS, cache_facts
from pytest_sparkperf.core.compared import Conversation
from pytest_sparkperf.core.conversation_set import TURNS, Message, ask, continued
from pytest_sparkperf.core.equivalence import Generation
from pytest_sparkperf.core.exposition import Scrape, difference
from pytest_sparkperf.core.logfault import fatal_reason
from pytest_sparkperf.core.logprobs import read_choices
from pytest_sparkperf.core.question import Question
from pytest_sparkperf.core.secrets import redact
from pytest_sparkperf.core.targets import SILENCE_TIMEOUT_S
from pytest_sparkperf.core.validity import REJECTED, SERVER_FAULTS
from pytest_sparkperf.experiment.counters import settled_scrape

_TAIL_LINES = 12
# A dying engine answers /health for a moment longer.
_DEATH_POLL_S = 0.25
_DEATH_POLLS = 8

Answers = tuple[Generation | None, ...]


@dataclass(frozen=True, slots=True)
class OpenServer:
    """One server that is up: an open client, the name its requests use, its k, its log where there is one.

    ``caching`` says whether its prefix cache is on, where its metrics may not; ``secrets`` are texts that
    must not be shown of the log.
    """

    client: httpx.AsyncClient
    model: str
    k: int | None = None
    log_path: Path | None = None
    caching: bool | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    silence_timeout_s: float = SILENCE_TIMEOUT_S

    @classmethod
    def of(cls, server: Server, client: httpx.AsyncClient) -> OpenServer:
        """Return what an asker needs of a server and a client that is open on it."""
        secrets = () if server.process is None else server.process.secrets
        caching = server.facts.get("prefix_caching")
        silence_s = server.silence_timeout_s
        return cls(client, server.model, server.k, server.log_path, caching, secrets, silence_s)


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions asked under one condition; ``by_value`` compares tool calls by what they call.

    ``concurrency`` of them are under way at once; ``again`` asks them again after the conversation.
    """

    name: str
    questions: tuple[Question, ...]
    concurrency: int = 1
    by_value: bool = False
    again: bool = False


class Asker:
    """Asks one server; once it is dead, every further answer is None and ``death`` says what was seen."""

    def __init__(self, server: OpenServer) -> None:
        self.server = server
        self.death: str | None = None
        self._survived = False
        self._timeouts = Timeouts.of_silence(server.silence_timeout_s)

    async def ask(self, questions: QuestionSet, *, candidates: bool = False) -> Answers:
        """Ask every question with a salt of its own, so that none finds another's prompt in the cache."""
        answers: list[Generation | None] = []
        for start in range(0, len(questions.questions), questions.concurrency):
            batch = questions.questions[start : start + questions.concurrency]
            answers += await self.together(batch, candidates=candidates)
        return tuple(answers)

    async def together(
        self, questions: Sequence[Question], *, candidates: bool = False, salt: str | None = None
    ) -> Answers:
        """Ask questions at the same time, with one salt where one is given."""
        if self.death is not None:
            return (None,) * len(questions)
        answers = await asyncio.gather(*(self._one(one, candidates, salt) for one in questions))
        failed = next((one.result for one in answers if one.result.reason in SERVER_FAULTS), None)
        if failed is not None and await self._is_dead():
            words = f"{failed.reason}: {failed.error}" if failed.error else str(failed.reason)
            self.death = f"the server died at {failed.prompt_name} ({words})"
        return tuple(answers)

    async def converse(
        self,
        opening: Sequence[Message],
        *,
        script: Conversation | None = None,
        candidates: bool = False,
        max_tokens: int = 256,
    ) -> Conversation:
        """Hold the conversation; with a ``script`` ask just its questions, else follow the own answers."""
        salt = uuid.uuid4().hex
        before = await settled_scrape(self.server.client)
        questions = list(script.questions) if script else []
        answers: list[Generation | None] = []
        history: tuple[Message, ...] = tuple(opening)
        for at in range(len(TURNS)):
            if script is None:
                questions.append(ask(history, at, max_tokens=max_tokens))
            answer = (await self.together([questions[at]], candidates=candidates, salt=salt))[0]
            answers.append(answer)
            if script is None and answer is not None:
                history = continued(history, at, answer.result)
        after = await settled_scrape(self.server.client) if self.death is None else None
        hits = _cached_tokens(before, after, answers)
        facts = cache_facts(before)
        if facts.enabled is None:
            facts = replace(facts, enabled=self.server.caching)
        return Conversation(tuple(questions), tuple(answers), salt, facts, hits)

    def obituary(self) -> str | None:
        """Say at which request the server died, why by its log, and how the log ends; None while it lives."""
        path = self.server.log_path
        if self.death is None or path is None:
            return self.death
        cause = fatal_reason(read_end(path))
        words = f"{self.death}; its log says: {cause}" if cause else self.death
        return redact(f"{words}\n{fence(read_tail(path, _TAIL_LINES))}", self.server.secrets)

    async def _one(self, question: Question, candidates: bool, salt: str | None) -> Generation:
        salt = salt or uuid.uuid4().hex
        answer = await self._send(question, candidates, salt)
        if candidates and answer.result.reason == REJECTED:
            # Not every server tells log-probabilities: then a difference has no known gap.
            answer = await self._send(question, False, salt)
        result = answer.result
        if result.token_ids is not None or result.reason in SERVER_FAULTS:
            return answer
        ids = await self._tokenize(result.reasoning + result.text)
        return (
            answer
            if ids is None
            else replace(answer, result=replace(result, token_ids=ids), retokenized=True)
        )

    async def _send(self, question: Question, candidates: bool, salt: str) -> Generation:
        body = question.body(self.server.model, salt=salt, candidates=candidates)
        request = GenerationRequest(question.endpoint, body, prompt_name=question.name, k=self.server.k)
        recording = await record_request(self.server.client, request, timeouts=self._timeouts)
        choices = read_choices(recording.reader.payloads, question.endpoint) if candidates else {}
        return Generation(recording.result(), choices)

    async def _tokenize(self, text: str) -> tuple[int, ...] | None:
        """Return the ids of a text by the server's tokenizer; None where it has none or nothing was said."""
        if not text:
            return None
        body = {"model": self.server.model, "prompt": text, "add_special_tokens": False}
        try:
            answer = await self.server.client.post("/tokenize", json=body)
            ids = answer.json()["tokens"] if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        return tuple(ids) if isinstance(ids, list) else None

    async def _is_dead(self) -> bool:
        # One that lived on after a fault is not watched for long at each later one.
        for _ in range(1 if self._survived else _DEATH_POLLS):
            try:
                answer = await self.server.client.get("/health")
            except httpx.HTTPError:
                return True
            if answer.status_code != httpx.codes.OK:
                return True
            await asyncio.sleep(_DEATH_POLL_S)
        self._survived = True
        return False


def _cached_tokens(
    before: Scrape | None, after: Scrape | None, answers: Sequence[Generation | None]
) -> float | None:
    """Return how many prompt tokens came from the cache, by the counters, else by the answers' usage."""
    if before is not None and after is not None:
        counted = difference(before, after).total(CACHE_HITS)
        if counted is not None:
            return counted
    told = [one.result.cached_tokens for one in answers if one is not None]
    known = [count for count in told if count is not None]
    return sum(known) if known else None
