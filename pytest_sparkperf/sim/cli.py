"""``sparkperf sim``: start a simulated server and serve until a signal ends it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Sequence

from pytest_sparkperf.core.errors import ConfigError, ServerError
from pytest_sparkperf.sim.engine import Engine
from pytest_sparkperf.sim.faults import FaultSwitches
from pytest_sparkperf.sim.generations import Endings
from pytest_sparkperf.sim.http import Connection
from pytest_sparkperf.sim.log import ServerLog
from pytest_sparkperf.sim.memory import MemoryKeeper
from pytest_sparkperf.sim.pages import DEAD_ENGINE, FAILED_START, start_lines
from pytest_sparkperf.sim.runner import EngineRunner
from pytest_sparkperf.sim.server import SimServer
from pytest_sparkperf.sim.settings import ServerSettings, parse_arguments
from pytest_sparkperf.sim.statslog import stats_lines, take_snapshot
from pytest_sparkperf.sim.traffic import ForeignTraffic

# Connections of a burst wait here until the loop comes round to them.
_BACKLOG = 2048
# How long a server answers /health with 503 after its engine died.
_DEATH_S = 1.0


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; return 0 then, 1 where it could not start, 2 for wrong usage."""
    try:
        settings = parse_arguments(argv, api_key=os.environ.get("VLLM_API_KEY"))
    except ConfigError as error:
        return _refuse(str(error), 2)
    log = ServerLog()
    if settings.faults.exit_at_start:
        for process, text in FAILED_START:
            log.line("core.py", text, process=process, level="ERROR")
        return 1
    try:
        asyncio.run(_serve(settings, log))
    except ServerError as error:
        return _refuse(str(error), 1)
    return 0


async def _serve(settings: ServerSettings, log: ServerLog) -> None:
    switches = FaultSwitches(settings.faults)
    stop = _stop_event(switches)
    for process, source, text in start_lines(settings):
        log.line(source, text, process=process)
    if await _stopped_within(stop, settings.start_delay_s):
        return
    engine = Engine(settings.profile, settings.engine)
    runner = EngineRunner(
        engine,
        on_compile=lambda name: _log_jit(log, name),
        paced=settings.paced,
        time_scale=settings.time_scale,
    )
    endings = Endings(process=lambda: _die(log), engine=lambda: _engine_died(log))
    app = SimServer(settings, runner, switches, endings, launch=f"{os.getpid()} {time.time_ns()}")
    listener = _listen(settings)
    loop = asyncio.get_running_loop()
    tls = _tls(settings)
    server = await loop.create_server(
        lambda: Connection(app.handle), sock=listener, backlog=_BACKLOG, ssl=tls
    )
    url = _url(settings.host, listener.getsockname()[1], "http" if tls is None else "https")
    log.line("entry.py", f"Starting vLLM server on {url}")
    log.plain("INFO:     Application startup complete.")
    switches.listen(MemoryKeeper(log).follow)
    switches.listen(ForeignTraffic(runner, settings.engine.seed).follow)
    logging = asyncio.create_task(_log_stats(log, engine, settings))
    await _run_until(stop, runner)
    logging.cancel()
    server.close()


def _listen(settings: ServerSettings) -> socket.socket:
    """Bind here rather than in the event loop, whose errors say less the newer Python is."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServerError(_listen_text(settings, error)) from None


async def _run_until(stop: asyncio.Event, runner: EngineRunner) -> None:
    serving = asyncio.create_task(runner.run())
    stopped = asyncio.create_task(stop.wait())
    # The loop never returns by itself. If it raises, the process must end: it would never answer again.
    await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()


async def _log_stats(log: ServerLog, engine: Engine, settings: ServerSettings) -> None:
    before = take_snapshot(engine.counters, time.monotonic() * settings.time_scale)
    while True:
        await asyncio.sleep(settings.stats_interval_s)
        after = take_snapshot(engine.counters, time.monotonic() * settings.time_scale)
        for source, text in stats_lines(before, after, engine.state()):
            log.line(source, text)
        before = after


def _stop_event(switches: FaultSwitches) -> asyncio.Event:
    stop = asyncio.Event()

    def terminate() -> None:
        if not switches.on.ignore_sigterm:
            stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    return stop


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    if not seconds:
        return False
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _log_jit(log: ServerLog, kernel: str) -> None:
    text = f"Triton kernel JIT compilation during inference: {kernel}. This causes a latency spike"
    log.line("jit_monitor.py", text, process="EngineCore", level="WARNING")


def _die(log: ServerLog) -> None:
    text = "EngineCore encountered a fatal error (simulated by --fault die_after)."
    log.line("core.py", text, process="EngineCore", level="ERROR")
    os._exit(1)


def _engine_died(log: ServerLog) -> None:
    """Say what vLLM says when its engine is gone, and end a moment later, as its API server does."""
    for process, source, text in DEAD_ENGINE:
        log.line(source, text, process=process, level="ERROR")
    asyncio.get_running_loop().call_later(_DEATH_S, os._exit, 1)


def _listen_text(settings: ServerSettings, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {settings.port} on {settings.host} is in use. Stop what listens there, or choose another "
            "--port (0 takes a free one)."
        )
    # A name that does not resolve has an errno of its own kind, below 0.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    return (
        f"Cannot listen on {settings.host!r} port {settings.port}: {reason}. "
        "Choose an address of this machine with --host."
    )


def _tls(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.ssl_files is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(*settings.ssl_files)
    except OSError as error:
        raise ServerError(
            f"--ssl-certfile {settings.ssl_files[0]!r} cannot be used: {error}. Give a file in PEM form, and "
            "its key by --ssl-keyfile."
        ) from None
    return context


def _url(host: str, port: int, scheme: str) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _refuse(text: str, code: int) -> int:
    sys.stderr.write(f"sparkperf sim: error: {text}\n")
    return code
