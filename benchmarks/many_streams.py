"""How many streams one client times: an open loop of many at once against a simulator that keeps its pace.

    python benchmarks/many_streams.py --streams 256

Streams come at a rate at which so many are under way; prints how late requests were sent against their own
schedule, how many were under way, what was not valid and whether a token was lost. Exits 1 beyond the bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.adapters.server import attach_server
from pytest_sparkperf.core.load import Load
from pytest_sparkperf.core.run_verdicts import percentile
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import make_variant
from pytest_sparkperf.experiment.long_run import Shooter
from pytest_sparkperf.experiment.prompts import prompts_for
from pytest_sparkperf.experiment.side import Side

P50_MS, P99_MS = 2.0, 20.0
_START_S = 60.0
_READY, _ADDRESS = "Application startup complete.", "Starting vLLM server on "


@dataclass(frozen=True, slots=True)
class Found:
    """What one run brought: lags in ms, streams asked for and under way at most, not valid, tokens lost."""

    lags_ms: tuple[float, ...]
    streams: int
    most_in_flight: int
    sent: int
    invalid: int
    lost_tokens: int
    seconds: float

    def lines(self) -> list[str]:
        """Say it."""
        return [
            f"{self.sent} requests in {self.seconds:.1f} s, up to {self.most_in_flight} under way",
            f"send lag p50 {percentile(self.lags_ms, 50):.2f} ms, p99 {percentile(self.lags_ms, 99):.2f} ms",
            f"{self.invalid} not valid, {self.lost_tokens} tokens lost",
        ]

    @property
    def sound(self) -> bool:
        """Were so many under way, is every stream there, and was each sent in time?"""
        in_time = percentile(self.lags_ms, 50) <= P50_MS and percentile(self.lags_ms, 99) <= P99_MS
        return in_time and self.most_in_flight >= self.streams and not self.invalid and not self.lost_tokens


def open_load(streams: int, output_tokens: int, stream_s: float) -> Load:
    """Return an open loop in which ``streams`` are under way once as many have come."""
    return Load(
        dataset="random",
        prompt_tokens=40,
        output_tokens=output_tokens,
        # No cap: a request that waits for another to end would not be sent on schedule.
        concurrency=4 * streams,
        capped=False,
        requests=4 * streams,
        request_rate=1.1 * streams / stream_s,
    )


async def run(url: str, load: Load, streams: int) -> Found:
    """Send a load and return what came of it."""
    variant = make_variant(Target("simulator", "attach", urls=((None, url),)))
    server = attach_server(variant)
    prompts = prompts_for(server, load)
    async with open_async_client(url) as client:
        shooter = Shooter(Side(variant, server, client, load, prompts), load)
        begun_s = time.monotonic()
        await shooter.send()
        seconds = time.monotonic() - begun_s
    answers = [recording.result() for _, recording in shooter.recordings]
    got = sum(answer.output_tokens or 0 for answer in answers)
    return Found(
        lags_ms=tuple(1000 * lag_s for lag_s in shooter.lags_s),
        streams=streams,
        most_in_flight=shooter.most_in_flight,
        sent=len(answers),
        invalid=sum(not answer.valid for answer in answers),
        lost_tokens=(load.requests or 0) * load.output_tokens - got,
        seconds=seconds,
    )


@contextmanager
def simulator(streams: int, slowdown: float) -> Iterator[str]:
    """Run a simulator that serves so many at once, and give its root."""
    command = [sys.executable, "-m", "pytest_sparkperf.sim", "--port", "0", "--jit-s", "0"]
    command += ["--max-num-seqs", str(2 * streams), "--slowdown", str(slowdown)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield _root(log, process)
        finally:
            process.terminate()
            process.wait()


def _root(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline_s = time.monotonic() + _START_S
    while _READY not in (text := log.read_text(encoding="utf-8")):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise SystemExit(f"the simulator did not start:\n{text}")
        time.sleep(0.05)
    return text.partition(_ADDRESS)[2].split()[0]


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=16)
    parser.add_argument("--stream-s", type=float, default=10.0, help="how long one stream takes, about")
    parser.add_argument("--slowdown", type=float, default=4.0)
    arguments = parser.parse_args()
    load = open_load(arguments.streams, arguments.output_tokens, arguments.stream_s)
    with simulator(arguments.streams, arguments.slowdown) as url:
        found = asyncio.run(run(url, load, arguments.streams))
    print("\n".join(found.lines()))
    return 0 if found.sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
