"""The simulated server: routes requests to pages and to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from itertools import count

from pytest_sparkperf.sim.body import RequestError, decode_body
from pytest_sparkperf.sim.chunks import ChunkWriter, Identity, UsageStyle, to_json
from pytest_sparkperf.sim.counters import exposition
from pytest_sparkperf.sim.delivery import Control, Delivery, StreamedOutput, WholeOutput
from pytest_sparkperf.sim.engine import EngineRequest
from pytest_sparkperf.sim.http import Exchange, HttpRequest
from pytest_sparkperf.sim.pages import VERSION, models_page, server_info_page
from pytest_sparkperf.sim.records import EmissionRecord, Recorder
from pytest_sparkperf.sim.requests import (
    Endpoint,
    Generation,
    Limits,
    check_model,
    parse_generation,
    parse_tokenize,
)
from pytest_sparkperf.sim.runner import EngineRunner
from pytest_sparkperf.sim.settings import ServerSettings

_PROMETHEUS = "text/plain; version=1.0.0; charset=utf-8"
_Route = Callable[[HttpRequest, Exchange], None]
_UNAVAILABLE = RequestError(
    "The server is temporarily unavailable.", status=503, kind="ServiceUnavailableError"
)


class SimServer:
    """Answers requests; ``die`` ends the process and is called by the fault ``die_after`` only."""

    def __init__(self, settings: ServerSettings, runner: EngineRunner, die: Callable[[], None]) -> None:
        self._settings = settings
        self._runner = runner
        self._die = die
        self._recorder = Recorder(settings.emissions_file)
        self._limits = Limits(settings.served_names, settings.max_model_len)
        self._created_s = time.time()
        self._numbers = count(1)
        self._usage = UsageStyle(
            hidden=settings.faults.no_usage,
            factor=2 if settings.faults.wrong_usage else 1,
            prompt_details=settings.prompt_details,
        )
        self._routes: Mapping[str, tuple[str, _Route]] = {
            "/health": ("GET", _empty),
            "/ping": ("GET", _empty),
            "/version": ("GET", lambda _, exchange: exchange.respond(200, to_json({"version": VERSION}))),
            "/v1/models": ("GET", self._models),
            "/server_info": ("GET", self._server_info),
            "/metrics": ("GET", self._metrics),
            "/tokenize": ("POST", self._tokenize),
            "/v1/chat/completions": ("POST", partial(self._generate, "chat")),
            "/v1/completions": ("POST", partial(self._generate, "completions")),
            "/sparkperf_sim/emissions": ("GET", self._emissions),
        }

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request, now or later through its exchange."""
        found = self._routes.get(request.path)
        if not self._authorized(request):
            exchange.respond(401, to_json({"error": "Unauthorized"}))
        elif found is None:
            exchange.respond(404, to_json({"detail": "Not Found"}))
        elif request.method != found[0]:
            exchange.respond(405, to_json({"detail": "Method Not Allowed"}), headers={"allow": found[0]})
        else:
            try:
                found[1](request, exchange)
            except RequestError as error:
                exchange.respond(error.status, to_json(error.body()))

    def _authorized(self, request: HttpRequest) -> bool:
        key = self._settings.api_key
        return (
            not key
            or not request.path.startswith("/v1")
            or request.headers.get("authorization") == f"Bearer {key}"
        )

    def _models(self, _: HttpRequest, exchange: Exchange) -> None:
        exchange.respond(200, to_json(models_page(self._settings, int(self._created_s))))

    def _server_info(self, request: HttpRequest, exchange: Exchange) -> None:
        page = server_info_page(self._settings)
        if request.query.get("config_format") != ["json"]:
            # vLLM's default is the configuration as one text.
            page["vllm_config"] = str(page["vllm_config"])
        exchange.respond(200, to_json(page))

    def _metrics(self, _: HttpRequest, exchange: Exchange) -> None:
        engine = self._runner.engine
        gauges = {
            "num_requests_running": engine.running,
            "num_requests_waiting": engine.waiting,
            "kv_cache_usage_perc": engine.kv_usage_ratio,
        }
        name = self._settings.served_names[0]
        page = exposition(engine.counters, gauges, model_name=name, created_s=self._created_s)
        exchange.respond(200, page.encode(), _PROMETHEUS)

    def _tokenize(self, request: HttpRequest, exchange: Exchange) -> None:
        body = decode_body(request.body)
        check_model(body, self._limits)
        tokens = parse_tokenize(body)
        page = {"count": len(tokens), "max_model_len": self._settings.max_model_len, "tokens": tokens}
        exchange.respond(200, to_json(page | {"token_strs": None}))

    def _emissions(self, _: HttpRequest, exchange: Exchange) -> None:
        exchange.respond(200, self._recorder.lines().encode(), "application/x-ndjson")

    def _generate(self, endpoint: Endpoint, request: HttpRequest, exchange: Exchange) -> None:
        if self._settings.faults.http_503:
            raise _UNAVAILABLE
        arrival_s = time.monotonic()
        number = next(self._numbers)
        generation = parse_generation(
            decode_body(request.body), endpoint, self._limits, nonce=f"request {number}"
        )
        if self._settings.faults.hang_ready:
            return
        request_id = self._hexadecimal(f"request {number}")
        delivery = self._delivery(generation, exchange, request_id, arrival_s, number)
        exchange.on_disconnect = delivery.abandoned
        self._runner.submit(_engine_request(generation, request_id), delivery.emit)

    def _delivery(
        self, generation: Generation, exchange: Exchange, request_id: str, arrival_s: float, number: int
    ) -> Delivery:
        faults = self._settings.faults
        fingerprint = f"vllm-{VERSION}-{self._hexadecimal('fingerprint')[:8]}"
        writer = ChunkWriter(generation, Identity(request_id, int(time.time()), fingerprint), self._usage)
        output = (
            StreamedOutput(exchange, writer, lumps=faults.lumps)
            if generation.options.stream
            else WholeOutput(exchange, writer)
        )
        record = EmissionRecord(request_id, arrival_s, len(generation.prompt_ids))
        die = self._die if number == faults.die_after else None
        control = Control(partial(self._runner.abort, request_id), die)
        return Delivery(output, record, self._recorder, faults, control)

    def _hexadecimal(self, text: str) -> str:
        """Return 16 digits that belong to this server's configuration and a text.

        As vLLM's, the fingerprint made of them differs between speculative decoding on and off; unlike
        vLLM's, the ids of requests repeat from run to run.
        """
        return blake2b(f"{self._settings.speculation} {text}".encode(), digest_size=8).hexdigest()


def _empty(_: HttpRequest, exchange: Exchange) -> None:
    exchange.respond(200, b"", None)


def _engine_request(generation: Generation, request_id: str) -> EngineRequest:
    finish = generation.finish_reason
    return EngineRequest(
        request_id=request_id,
        prompt_ids=generation.prompt_ids,
        digest=generation.digest,
        output_tokens=generation.output_tokens,
        finish_reason="stop" if finish == "tool_calls" else finish,
        cache_salt=generation.cache_salt,
    )
