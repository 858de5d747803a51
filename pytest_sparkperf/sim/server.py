"""The simulated server: routes requests to pages and to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from pytest_sparkperf.core.errors import ConfigError
from pytest_sparkperf.sim.body import RequestError, decode_body
from pytest_sparkperf.sim.chunks import to_json
from pytest_sparkperf.sim.counters import exposition
from pytest_sparkperf.sim.faults import Faults, FaultSwitches
from pytest_sparkperf.sim.generations import Endings, Generations
from pytest_sparkperf.sim.http import Exchange, HttpRequest
from pytest_sparkperf.sim.pages import OTHER_MODEL, cache_labels, models_page, server_info_page, version
from pytest_sparkperf.sim.requests import check_model, parse_tokenize, token_texts
from pytest_sparkperf.sim.runner import EngineRunner
from pytest_sparkperf.sim.settings import ServerSettings

_PROMETHEUS = "text/plain; version=1.0.0; charset=utf-8"
_IMPOSSIBLE_PACE = 0.1
_Route = Callable[[HttpRequest, Exchange], None]


class SimServer:
    """Answers requests; ``launch`` is a text of this start's own, for the fault that hangs on it."""

    def __init__(
        self,
        settings: ServerSettings,
        runner: EngineRunner,
        switches: FaultSwitches,
        endings: Endings,
        *,
        launch: str = "",
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._switches = switches
        self._created_s = time.time()
        self._generations = Generations(settings, runner, switches, endings, launch=launch)
        switches.listen(self._set_pace)
        self._routes: Mapping[tuple[str, str], _Route] = {
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/v1/models"): self._models,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/chat/completions"): partial(self._generations.generate, "chat"),
            ("POST", "/v1/completions"): partial(self._generations.generate, "completions"),
            ("GET", "/sparkperf_sim/emissions"): self._emissions,
            ("GET", "/sparkperf_sim/faults"): self._faults,
            ("POST", "/sparkperf_sim/faults"): self._switch_fault,
        }

    def handle(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer one request, now or later through its exchange."""
        route = self._routes.get((request.method, request.path))
        allowed = [method for method, path in self._routes if path == request.path]
        if not self._authorized(request):
            exchange.respond(401, to_json({"error": "Unauthorized"}))
        elif not allowed:
            exchange.respond(404, to_json({"detail": "Not Found"}))
        elif route is None:
            allow = {"allow": ", ".join(allowed)}
            exchange.respond(405, to_json({"detail": "Method Not Allowed"}), headers=allow)
        else:
            try:
                route(request, exchange)
            except RequestError as error:
                exchange.respond(error.status, to_json(error.body()))

    def _set_pace(self, faults: Faults) -> None:
        engine = self._runner.engine
        engine.pace = (faults.slow or 1.0) * (_IMPOSSIBLE_PACE if faults.impossible_rate else 1.0)
        engine.stall_after = faults.stall_after

    def _authorized(self, request: HttpRequest) -> bool:
        key = self._settings.api_key
        return (
            not key
            or not request.path.startswith("/v1")
            or request.headers.get("authorization") == f"Bearer {key}"
        )

    def _health(self, _: HttpRequest, exchange: Exchange) -> None:
        exchange.respond(503 if self._generations.engine_dead else 200, b"", None)

    def _version(self, _: HttpRequest, exchange: Exchange) -> None:
        exchange.respond(200, to_json({"version": version(self._settings)}))

    def _models(self, _: HttpRequest, exchange: Exchange) -> None:
        names = (OTHER_MODEL,) if self._switches.on.wrong_model else self._settings.served_names
        exchange.respond(200, to_json(models_page(self._settings, names, int(self._created_s))))

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
        page = exposition(
            engine.counters,
            gauges,
            model_name=self._settings.served_names[0],
            created_s=self._generations.counting_since_s,
            cache_config=cache_labels(self._settings),
        )
        exchange.respond(200, page.encode(), _PROMETHEUS)

    def _tokenize(self, request: HttpRequest, exchange: Exchange) -> None:
        body = decode_body(request.body)
        check_model(body, self._generations.limits)
        tokens = parse_tokenize(body)
        page = {"count": len(tokens), "max_model_len": self._settings.max_model_len, "tokens": tokens}
        exchange.respond(200, to_json(page | {"token_strs": token_texts(body)}))

    def _emissions(self, _: HttpRequest, exchange: Exchange) -> None:
        exchange.respond(200, self._generations.recorder.lines().encode(), "application/x-ndjson")

    def _faults(self, _: HttpRequest, exchange: Exchange) -> None:
        exchange.respond(200, to_json(self._switches.page()))

    def _switch_fault(self, request: HttpRequest, exchange: Exchange) -> None:
        body = decode_body(request.body)
        try:
            self._switches.switch(
                body.get("name"), body.get("value", True), requests_seen=self._generations.seen
            )
        except ConfigError as error:
            raise RequestError(str(error), param="name") from None
        exchange.respond(200, to_json(self._switches.page()))
