"""Generation requests of a simulated server: from the body through the engine to the client."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import count

from pytest_sparkperf.sim.body import Body, RequestError, decode_body
from pytest_sparkperf.sim.chunks import ChunkWriter, Identity, UsageStyle
from pytest_sparkperf.sim.delivery import ENGINE_DEAD, Control, Delivery, StreamedOutput, WholeOutput
from pytest_sparkperf.sim.engine import EngineRequest
from pytest_sparkperf.sim.faults import Faults, FaultSwitches
from pytest_sparkperf.sim.http import Exchange, HttpRequest
from pytest_sparkperf.sim.pages import OTHER_MODEL, version
from pytest_sparkperf.sim.records import EmissionRecord, Recorder
from pytest_sparkperf.sim.requests import Asked, Endpoint, Generation, Limits, parse_generation
from pytest_sparkperf.sim.runner import EngineRunner
from pytest_sparkperf.sim.settings import ServerSettings
from pytest_sparkperf.sim.structured import demands_form
from pytest_sparkperf.sim.twist import Twist, Twister

_UNAVAILABLE = RequestError(
    "The server is temporarily unavailable.", status=503, kind="ServiceUnavailableError"
)
_TOO_MANY = RequestError("Too many requests, try again later.", status=429, kind="RateLimitError")
_DEAD = RequestError(str(ENGINE_DEAD["error"]["message"]), status=500, kind="InternalServerError")


@dataclass(frozen=True, slots=True)
class Endings:
    """How faults end a server: ``process`` at once, ``engine`` with words first and the process behind it."""

    process: Callable[[], None]
    engine: Callable[[], None]


class Generations:
    """Answers generation requests until its engine dies; ``launch`` names the start of the process."""

    def __init__(
        self,
        settings: ServerSettings,
        runner: EngineRunner,
        switches: FaultSwitches,
        endings: Endings,
        *,
        launch: str,
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._switches = switches
        self._endings = endings
        self.recorder = Recorder(settings.emissions_file)
        self.limits = Limits(settings.served_names, settings.max_model_len, settings.automatic_tools)
        self.engine_dead = False
        self.counting_since_s = time.time()
        self.seen = 0
        self._numbers = count(1)
        self._twister = Twister(launch)
        self._live: dict[str, Delivery] = {}

    def generate(self, endpoint: Endpoint, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request through its exchange, or raise RequestError."""
        arrival_s = time.monotonic()
        faults = self._switches.on
        if faults.http_503:
            raise _UNAVAILABLE
        if faults.http_429:
            raise _TOO_MANY
        if self.engine_dead:
            raise _DEAD
        self.seen = number = next(self._numbers)
        body = decode_body(request.body)
        generation = parse_generation(
            body, endpoint, self.limits, nonce=f"request {number}", twist=partial(self._twist, faults)
        )
        if self._switches.is_due("counter_reset", number):
            self._runner.engine.reset_counters()
            self.counting_since_s = time.time()
        if faults.hang_ready:
            return
        request_id = self._hexadecimal(f"request {number}")
        record = EmissionRecord(request_id, arrival_s, len(generation.prompt_ids))
        control = self._control(request_id, number, kills=_kills(body, faults))
        output = self._output(generation, exchange, request_id)
        delivery = self._live[request_id] = Delivery(output, record, self.recorder, faults, control)
        exchange.on_disconnect = delivery.abandoned
        self._runner.submit(_engine_request(generation, request_id, faults), delivery.emit)

    def _control(self, request_id: str, number: int, *, kills: bool) -> Control:
        return Control(
            abort=partial(self._runner.abort, request_id),
            over=lambda: self._forget(request_id),
            die=self._endings.process if self._switches.is_due("die_after", number) else None,
            break_engine=self._break_engine if kills else None,
        )

    def _forget(self, request_id: str) -> None:
        self._live.pop(request_id, None)

    def _twist(self, faults: Faults, asked: Asked) -> Twist:
        salt = "" if faults.warm_cache else asked.cache_salt
        cached = self._runner.engine.known_tokens(asked.prompt_ids, salt)
        return self._twister.twist(
            faults, asked.prompt_ids, cached_tokens=cached, ignore_eos=asked.ignore_eos
        )

    def _output(
        self, generation: Generation, exchange: Exchange, request_id: str
    ) -> StreamedOutput | WholeOutput:
        faults = self._switches.on
        fingerprint = f"vllm-{version(self._settings)}-{self._hexadecimal('fingerprint')[:8]}"
        usage = UsageStyle(
            hidden=faults.no_usage,
            factor=2 if faults.wrong_usage else 1,
            prompt_details=self._settings.prompt_details,
        )
        model = OTHER_MODEL if faults.wrong_model else generation.model
        identity = Identity(request_id, int(time.time()), fingerprint, model)
        writer = ChunkWriter(generation, identity, usage)
        if generation.options.stream:
            return StreamedOutput(exchange, writer, faults)
        return WholeOutput(exchange, writer)

    def _break_engine(self) -> None:
        self.engine_dead = True
        for delivery in list(self._live.values()):
            delivery.fail()
        self._endings.engine()

    def _hexadecimal(self, text: str) -> str:
        """Return 16 digits that belong to this server's configuration and a text.

        As vLLM's, the fingerprint made of them differs between speculative decoding on and off; unlike
        vLLM's, the ids of requests repeat from run to run.
        """
        return blake2b(f"{self._settings.speculation} {text}".encode(), digest_size=8).hexdigest()


def _kills(body: Body, faults: Faults) -> bool:
    if faults.engine_death_on == "schema":
        return demands_form(body)
    return faults.engine_death_on == "required" and body.get("tool_choice") == "required"


def _engine_request(generation: Generation, request_id: str, faults: Faults) -> EngineRequest:
    finish = generation.finish_reason
    return EngineRequest(
        request_id=request_id,
        prompt_ids=generation.prompt_ids,
        digest=generation.digest,
        output_tokens=generation.output_tokens,
        finish_reason="stop" if finish == "tool_calls" else finish,
        cache_salt="" if faults.warm_cache else generation.cache_salt,
    )
