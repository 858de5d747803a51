"""Measures the published figures back from the simulated machines and writes docs/published.md.

Run ``python benchmarks/published_table.py docs/published.md``; it takes about 80 minutes. What one stream or
one burst shows is measured by gates of the plugin; the report's queues and the long ShareGPT runs are sent
to a fresh server each, as they were published. ``WORK`` (an option) is a folder to go on from.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from pytest_sparkperf.adapters.client import GenerationRequest, Timeouts, clock_of, record_request
from pytest_sparkperf.adapters.http import open_async_client
from pytest_sparkperf.core.burst import burst_figures
from pytest_sparkperf.sim.profiles import PROFILES
from pytest_sparkperf.sim.published import POINTS, Point, simulated
from pytest_sparkperf.sim.rehearsal import Figures, Shape, offered_prompt, rehearse

# At most so many chunks a second: a shared machine of two cores must keep up with them.
_CHUNKS_PER_S = 800.0
_BURST_CHUNKS_PER_S = 400.0  # of short bursts, which do not catch up
_LARGEST_SCALE, _SINGLE_SCALE, _LONG_SCALE = 20.0, 4.0, 5.0
# Prompts that take so long that a client's milliseconds do not show.
_LONG, _LONG_REQUESTS = 100_000, 4
# One of them at real speed.
_REAL_SPEED = "gb10-recipe"
# Runs that no gate measures: each is sent to a fresh server. Of a ShareGPT run's 1,000 requests so many.
_SENT_ONCE = ("gb10-report", "thor-report", "rtx-pro-6000-report", "gb10-fp8", "gb10-marlin")
_SHAREGPT_REQUESTS = 512
_OFFERED = 16  # the report's requests, all at once
# How often a load is drawn, for the luck of a few texts with their drafts is not that of many: a gate of one
# stream (four texts) so often, bursts until they have had so many texts, the report's sixteen and the cold
# start for about so long, and no more often than what is simulated.
_SINGLE_DRAWS, _BURST_TEXTS, _REPORT_S, _REPORT_DRAWS = 3, 96, 120.0, 8
_READ_S_PER_TOKEN = 6e-6
_READY, _ADDRESS = "Application startup complete.", "Starting vLLM server on "
_SUITE = """
import json
from pathlib import Path
from statistics import fmean

import pytest

CASES = json.loads(Path("cases.json").read_text())
METRICS = ("decode_tok_s", "output_tok_s", "decode_throughput_tok_s", "ttft_ms", "tpot_ms")


@pytest.mark.parametrize("number", range(len(CASES)))
def test_case(number, sparkperf_measure):
    kept = Path(CASES[number]["kept"])
    if kept.exists():
        return
    wanted, found = CASES[number]["seeds"], []
    for seed in range(wanted + 3):
        result = sparkperf_measure(seed=seed, **CASES[number]["mark"])
        found += [result] if result.rounds else []
        if len(found) == wanted:
            break
    figures = {name: fmean(getattr(one, name) for one in found) for name in METRICS}
    figures["speed"] = found[0].server["time_scale"]
    kept.write_text(json.dumps(figures))
"""
_INTRO = """# Published figures, simulated and measured

Each simulated machine is fitted to one publication: [profiles.py](../pytest_sparkperf/sim/profiles.py) states
every number and its source, [published.py](../pytest_sparkperf/sim/published.py) the figures. No figure is
looked up: each follows from the engine loop, where a step costs what it reads and computes.

- **published**: as its author wrote it.
- **simulated**: the engine loop run without a clock, tested in `tests/unit/test_sim_profiles.py`.
- **measured**: a simulator process, over HTTP, on the clock. Where `speed` is above 1 its time runs so many
  times as fast, and rates are in its own seconds.
- **may**: the published spread, or 3 % where none is given. The report's TPOT and TTFT are means of 16
  requests, for which the published P99 gives twice the standard error. What misses by more has a **!**.

Single streams and bursts are measured by gates, on random prompts of the published length. The report's
queues (16 requests offered to 4 places) and the ShareGPT runs at concurrency 32 (the first {sharegpt} of
1,000 requests) are sent to a fresh server, as they were published; a prompt-heavy run was the first on
its machine, so it compiles as it goes, as does the cold start. Of the prompts above 100,000 tokens four are
sent, one after the other. One publication is measured at real speed.

How many drafts are accepted is drawn for each text, so a load of few texts has luck: the rates of 16 scatter
by 2 % between sets of prompts. What is simulated is therefore a mean over sets of 128 texts in all.
What is measured is one over 12 texts for a single stream, 96 for a burst, and 16 to 128 for the report's
queues (as many sets as run in two minutes); deep prompts, bursts at real speed and what has no drafts are
measured once. The measured figures here were taken on two cores.

```shell
python benchmarks/published_table.py docs/published.md
```

| machine | load | metric | published | simulated | measured | may | speed |
|---|---|---|---|---|---|---|---|
"""

_Found = Mapping[str, float]


def main() -> None:
    """Measure everything that the folder has not, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--work", type=Path, metavar="WORK")
    options = parser.parse_args()
    folder = options.work or Path(tempfile.mkdtemp(prefix="published-"))
    folder.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"keeping measurements in {folder}\n")
    shapes = list(dict.fromkeys((point.profile, _measured_as(point)) for point in POINTS))
    gated = [(profile, shape) for profile, shape in shapes if not _is_sent_once(profile, shape)]
    found = dict(zip(gated, by_gates(gated, folder), strict=True))
    for profile, shape in shapes:
        if _is_sent_once(profile, shape):
            found[profile, shape] = _kept(folder, profile, shape)
    options.output.write_text(_INTRO.format(sharegpt=_SHAREGPT_REQUESTS) + "\n".join(rows(found)) + "\n")


def _measured_as(point: Point) -> Shape:
    """Return the load that shows a point: TTFT and decode rate of a depth come from the same requests."""
    shape = point.shape
    if shape.output_tokens > 2:
        return shape
    return next(other.shape for other in POINTS if other.shape.prompt_tokens == shape.prompt_tokens)


def _is_sent_once(profile: str, shape: Shape) -> bool:
    """Tell whether a load is no gate's: a queue, a long run, or one that compiles, which a gate waits for."""
    return profile in _SENT_ONCE or shape.cold or shape.prompt_tokens >= _LONG


def time_scale(profile: str, shape: Shape) -> float:
    """Return how fast a load may run: by its chunks, and so that HTTP's milliseconds do not show in TTFT."""
    if profile == _REAL_SPEED:
        return 1.0
    if shape.streams == 1:
        return _SINGLE_SCALE if shape.prompt_tokens < _LONG else _LONG_SCALE
    accepted, figures = shape.accepted or _accepted(profile, shape.k), rehearse(PROFILES[profile], shape)
    most = _CHUNKS_PER_S if profile in _SENT_ONCE else _BURST_CHUNKS_PER_S
    scale = most / (figures.output_tok_s / (1 + sum(accepted)))
    if profile in _SENT_ONCE and shape.requests == _OFFERED:
        # All are sent at once, and the simulator's process reads one after the other.
        scale = min(scale, 0.02 * figures.ttft_s / (_OFFERED * shape.prompt_tokens * _READ_S_PER_TOKEN))
    return max(1.0, round(min(_LARGEST_SCALE, scale), 1))


def _accepted(profile: str, k: int) -> tuple[float, ...]:
    shares, reached = [], 1.0
    for share in PROFILES[profile].accepted_given(k)[:k]:
        reached *= share
        shares.append(reached)
    return tuple(shares)


def by_gates(shapes: Sequence[tuple[str, Shape]], folder: Path) -> list[_Found]:
    """Measure loads by gates of the plugin, in a suite that is resumed where it was broken off."""
    cases: list[dict[str, Any]] = []
    targets: dict[str, Any] = {}
    for number, (profile, shape) in enumerate(shapes):
        args = {"profile": profile, "time-scale": time_scale(profile, shape), "max-num-seqs": shape.streams}
        if shape.accepted:
            args["acceptance"] = list(shape.accepted)
        targets[f"case{number}"] = {"launch": "sim", "args": args}
        mark, seeds = _mark(number, shape), _seeds(profile, shape)
        kept = _name(profile, shape, {**mark, "target": args, "seeds": seeds})
        cases.append({"mark": mark, "seeds": seeds, "kept": kept})
    document = {"version": 1, "targets": targets}
    (folder / "sparkperf.yaml").write_text(yaml.safe_dump(document))
    (folder / "cases.json").write_text(json.dumps(cases))
    (folder / "test_cases.py").write_text(_SUITE)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--sparkperf"]
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    subprocess.run([*command, "-p", "no:cacheprovider"], cwd=folder, env=env, check=True)
    return [json.loads((folder / case["kept"]).read_text()) for case in cases]


def _name(profile: str, shape: Shape, how: Mapping[str, Any]) -> str:
    """Return where a measurement is kept; the machine and the way it is measured are part of the name."""
    everything = json.dumps([asdict(PROFILES[profile]), asdict(shape), how], sort_keys=True)
    digest = blake2b(everything.encode(), digest_size=4).hexdigest()
    return f"{profile}-{shape.prompt_tokens}-{shape.output_tokens}-{shape.streams}-{shape.k}-{digest}.json"


def _seeds(profile: str, shape: Shape) -> int:
    """Return how many times a gate draws its prompts: once where no luck is in it, or where it takes long."""
    if not shape.k or shape.prompt_tokens >= 8000:
        return 1
    if profile == _REAL_SPEED:
        return 1 if shape.streams > 1 else _SINGLE_DRAWS
    return _SINGLE_DRAWS if shape.streams == 1 else -(-_BURST_TEXTS // shape.streams)


def _mark(number: int, shape: Shape) -> dict[str, Any]:
    return {
        "target": f"case{number}",
        "k": shape.k,
        "dataset": "random",
        "prompt_tokens": shape.prompt_tokens,
        "output_tokens": shape.output_tokens,
        "concurrency": shape.streams,
        "prefix_cache": "warm" if shape.warm else "cold",
        "max_rounds": 3,
        "budget_s": 3600,
    }


def _kept(folder: Path, profile: str, shape: Shape) -> _Found:
    draws = _draws(profile, shape)
    how = {"draws": draws, "requests": _count(shape), "scale": time_scale(profile, shape)}
    path = folder / _name(profile, shape, how)
    if not path.exists():
        sys.stderr.write(f"{profile} {load_words(shape)}\n")
        found = [sent_once(profile, shape, folder, draw) for draw in range(draws)]
        path.write_text(json.dumps({name: fmean(each[name] for each in found) for name in found[0]}))
    kept: _Found = json.loads(path.read_text())
    return kept


def _draws(profile: str, shape: Shape) -> int:
    if shape.requests not in (1, _OFFERED):
        return 1
    takes_s = rehearse(PROFILES[profile], shape).duration_s / time_scale(profile, shape)
    return max(1, min(_REPORT_DRAWS, round(_REPORT_S / takes_s)))


def sent_once(profile: str, shape: Shape, folder: Path, draw: int) -> _Found:
    """Send a load to a fresh server of its own, as many requests at once as were published."""
    scale = time_scale(profile, shape)
    flags = ["--profile", profile, "--time-scale", str(scale), "--max-num-seqs", str(shape.streams)]
    flags += [] if shape.cold else ["--jit-s", "0"]
    flags += [word for share in shape.accepted for word in ("--acceptance", str(share))]
    if shape.k:
        flags += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": shape.k})]
    log = folder / "simulator.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "pytest_sparkperf.sim", "--port", "0", *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while _READY not in log.read_text():
            time.sleep(0.05)
        url = log.read_text().partition(_ADDRESS)[2].split()[0]
        return asyncio.run(_closed_loop(url, profile, shape, scale, draw))
    finally:
        server.terminate()
        server.wait()


async def _closed_loop(url: str, profile: str, shape: Shape, scale: float, draw: int) -> _Found:
    # The report offers all of its 16 requests at once, whatever runs together.
    workers = _OFFERED if shape.requests == _OFFERED else shape.streams
    requests = [_request(number, draw, profile, shape) for number in range(_count(shape))]
    places, clock = asyncio.Semaphore(workers), clock_of(scale)
    # In a queue the first token may take minutes.
    timeouts = replace(Timeouts(), first_event_s=3600.0).scaled(scale)

    async def one(request: GenerationRequest) -> Any:
        async with places:
            return await record_request(client, request, timeouts=timeouts, clock=clock)

    async with open_async_client(url) as client:
        recordings = await asyncio.gather(*(one(request) for request in requests))
    found = [recording.result() for recording in recordings]
    for request in found:
        if not request.valid:
            raise SystemExit(f"a request was not valid ({request.reason}): {request.error}")
    figures = dict(burst_figures(found, "n_minus_1"))
    figures |= {
        "ttft_ms": fmean(request.ttft_ms for request in found if request.ttft_ms is not None),
        "tpot_ms": fmean(tpot for request in found if (tpot := request.tpot_ms_by("n_minus_1")) is not None),
    }
    return {name: value for name, value in figures.items() if value is not None} | {"speed": scale}


def _count(shape: Shape) -> int:
    return _LONG_REQUESTS if shape.prompt_tokens >= _LONG else min(shape.requests, _SHAREGPT_REQUESTS)


def _request(number: int, draw: int, profile: str, shape: Shape) -> GenerationRequest:
    body = {
        "model": PROFILES[profile].model,
        "prompt": offered_prompt(number, shape.prompt_tokens, draw),
        "max_tokens": shape.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        # A server that returns ids returns the prompt's too, before the first token: a megabyte of them here.
        "return_token_ids": False,
    }
    return GenerationRequest("completions", body, expected_tokens=shape.output_tokens, k=shape.k)


def rows(found: Mapping[tuple[str, Shape], _Found]) -> Iterator[str]:
    """Yield the table's rows; a measured figure that misses by more than it may is marked."""
    known: dict[tuple[str, Shape], Figures] = {}
    for point in POINTS:
        key = (point.profile, point.shape)
        if key not in known:
            known[key] = simulated(PROFILES[point.profile], point.shape)
        shape = _measured_as(point)
        metric = "ttft_ms" if point.metric == "ttft_s" else point.metric
        measured = found[point.profile, shape][metric] / (1000 if point.metric == "ttft_s" else 1)
        figures = asdict(known[key])[point.metric]
        speed = found[point.profile, shape]["speed"]
        yield (
            f"| {point.profile} | {load_words(shape)} | {point.metric} | {point.value:g} "
            f"| {_told(figures, point)} | {_told(measured, point)} | {point.spread:.1%} | {speed:g} |"
        )


def load_words(shape: Shape) -> str:
    """Return a load in a few words."""
    words = f"{shape.prompt_tokens}/{shape.output_tokens}, k={shape.k}, {shape.streams} at once"
    return words + (", warm cache" if shape.warm else "") + (", cold start" if shape.cold else "")


def _told(value: float, point: Point) -> str:
    miss = value / point.value - 1
    flag = " **!**" if abs(miss) > point.spread else ""
    return f"{value:.4g} ({miss:+.1%}){flag}"


if __name__ == "__main__":
    main()
