"""Measure how often the shipped gate is wrong, on made-up machines whose truth is known.

usage: python benchmarks/gate_error_rates.py [--repetitions 4000] [--processes 2] [--launch-sd 0.006]

Each line is one rule in one scenario. Per true change: FAIL / INCONCLUSIVE / PASS in percent, and the mean
number of requests that answer took, warm-up and soak included.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import peers
from generator import PROMPTS, SCENARIOS, Machine, Scenario, Server, prompt_levels

from pytest_sparkperf.core.blocks import BLOCKS, Block, block_plan, judge_blocks
from pytest_sparkperf.core.claim import Claim, floor, margin
from pytest_sparkperf.core.constants import ASSUMED, Constants
from pytest_sparkperf.core.heat import Thermal
from pytest_sparkperf.core.order import Arm, cells_for
from pytest_sparkperf.core.sampling import Plan, Sampler
from pytest_sparkperf.core.summary import Baseline
from pytest_sparkperf.core.taken import Taken

METRIC = "decode_tok_s"
BASELINE_RUNS = 10
# A stored run is the mean of at least 8 rounds; this is what its own requests leave of noise.
STORED_RUN_SE = 0.004
HOT = Thermal("plateau", 0.0)  # the generator's thermometer counts from the hot level
PLAN = Plan(cells_for(PROMPTS))


@dataclass(frozen=True, slots=True)
class Answer:
    """One simulated run: what the rule said after how many requests."""

    outcome: str
    requests: int


def sample(sampler: Sampler, machine: Machine, servers: Mapping[Arm, Server]) -> Answer:
    """Run the shipped sampler on a made-up machine."""
    while (current := sampler.next_pass()) is not None:
        values = {
            (cell, arm): {METRIC: math.exp(servers[arm].rate(PLAN.prompts[cell]))}
            for cell, arm in current.order
        }
        sampler.add(values, temperature_c=machine.temperature_c, at_s=machine.seconds)
    (verdict,) = sampler.outcome
    return Answer(verdict.outcome, machine.served)


def absolute(
    source: random.Random, scenario: Scenario, change: float, constants: Constants, tolerance: float
) -> Answer:
    """A floor of 100 tok/s on a server that truly runs at 100 * (1 + change) when hot."""
    machine = Machine(source, scenario)
    level = math.log(100 * (1 + change))
    server = Server(machine, [level + own for own in prompt_levels(source, scenario.prompt_sd)])
    claim = floor("min_decode", METRIC, 100.0, tolerance)
    plan = replace(PLAN, thermal=HOT, constants=constants)
    return sample(Sampler(plan, [claim]), machine, {"B": server})


def baseline(source: random.Random, scenario: Scenario, change: float, constants: Constants) -> Answer:
    """Today's run against ten stored ones, ``max_slowdown=0.05``."""
    spread = math.hypot(scenario.run_sd, STORED_RUN_SE)
    stored = tuple(source.gauss(0, spread) for _ in range(BASELINE_RUNS))
    machine = Machine(source, scenario)
    level = source.gauss(0, scenario.run_sd) + math.log(1 + change)
    server = Server(machine, [level + own for own in prompt_levels(source, scenario.prompt_sd)])
    claim = margin(METRIC, 0.05, paired=False)
    plan = replace(PLAN, thermal=HOT, constants=constants)
    runs = Baseline(stored, (0.0,) * BASELINE_RUNS)
    return sample(Sampler(plan, [claim], {METRIC: runs}), machine, {"B": server})


def paired(source: random.Random, scenario: Scenario, change: float, constants: Constants) -> Answer:
    """Two resident servers, B truly slower by the change, ``max_slowdown=0.03``."""
    machine = Machine(source, scenario)
    servers = _pair(source, scenario, change, machine)
    claim: Claim = margin(METRIC, 0.03, paired=True)
    plan = replace(PLAN, paired=True, thermal=HOT, constants=constants)
    return sample(Sampler(plan, [claim]), machine, servers)


def by_restart(source: random.Random, scenario: Scenario, change: float, constants: Constants) -> Answer:
    """The same by restart: each block is a new start of one server, on a machine that has cooled down."""
    levels = prompt_levels(source, scenario.prompt_sd)
    interaction = prompt_levels(source, scenario.interaction_sd)
    plan = replace(PLAN, paired=True, thermal=HOT, constants=constants)
    blocks, requests = [], 0
    for arm in BLOCKS:
        machine = Machine(source, scenario)
        launch = source.gauss(0, scenario.launch_sd)
        truth = levels
        if arm == "B":
            truth = [
                level + own + math.log(1 + change) for level, own in zip(levels, interaction, strict=True)
            ]
        blocks.append(_block(arm, plan, machine, Server(machine, [level + launch for level in truth])))
        requests += machine.served
    (verdict,) = judge_blocks(blocks, [margin(METRIC, 0.03, paired=True)], plan)
    return Answer(verdict.outcome, requests)


def _block(arm: Arm, plan: Plan, machine: Machine, server: Server) -> Block:
    sampler = Sampler(block_plan(plan))
    passes: dict[int, Taken] = {}
    while (current := sampler.next_pass()) is not None:
        values = {step: {METRIC: math.exp(server.rate(PLAN.prompts[step[0]]))} for step in current.order}
        sampler.add(values, temperature_c=machine.temperature_c, at_s=machine.seconds)
        passes[current.index] = Taken(current.index, values)
    return Block(arm, tuple(passes[index] for index in sampler.round_passes), sampler.reason)


def _pair(source: random.Random, scenario: Scenario, change: float, machine: Machine) -> dict[Arm, Server]:
    levels = prompt_levels(source, scenario.prompt_sd)
    interaction = prompt_levels(source, scenario.interaction_sd)
    launch_a, launch_b = (source.gauss(0, scenario.launch_sd) for _ in range(2))
    slower = math.log(1 + change) + launch_b
    return {
        "A": Server(machine, [level + launch_a for level in levels]),
        "B": Server(machine, [level + own + slower for level, own in zip(levels, interaction, strict=True)]),
    }


def peer_absolute(
    source: random.Random, scenario: Scenario, change: float, rule: peers.Rule, requests: int
) -> Answer:
    """Judge a floor by another rule: one prompt, nothing discarded, no soak."""
    server = Server(Machine(source, scenario), [math.log(100 * (1 + change))] * PROMPTS)
    return Answer(rule((), _rates(server, requests)), requests)


def peer_baseline(
    source: random.Random, scenario: Scenario, change: float, rule: peers.Rule, requests: int
) -> Answer:
    """Judge today against one stored session by another rule; the stored one was hot, today starts cold."""
    levels = prompt_levels(source, scenario.prompt_sd)
    run = source.gauss(0, scenario.run_sd)
    before = Server(Machine(source, replace(scenario, drift=0.0)), [level + run for level in levels])
    shift = source.gauss(0, scenario.run_sd) + math.log(1 + change)
    after = Server(Machine(source, scenario), [level + shift for level in levels])
    return Answer(rule(_rates(before, requests), _rates(after, requests)), requests)


def peer_paired(
    source: random.Random, scenario: Scenario, change: float, rule: peers.Rule, requests: int
) -> Answer:
    """Judge an A/B by another rule, A's requests before B's."""
    servers = _pair(source, replace(scenario, interaction_sd=0.0), change, Machine(source, scenario))
    before = _rates(servers["A"], requests)
    return Answer(rule(before, _rates(servers["B"], requests)), 2 * requests)


def _rates(server: Server, requests: int) -> list[float]:
    return [server.rate(index % PROMPTS) for index in range(requests)]


# ---------------------------------------------------------------------- tables
Trial = Callable[[random.Random, Scenario, float], Answer]


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of gate: the true changes it is tried at, and the rules that are tried."""

    title: str
    changes: tuple[float, ...]
    rules: Mapping[str, Trial]


def tables(constants: Constants) -> Sequence[Table]:
    """Return what is measured."""
    return (
        Table(
            "ABSOLUTE, floor 100 tok/s",
            (0.04, 0.0, -0.03, -0.05),
            {
                "sparkperf, tolerance 0.02": partial(absolute, constants=constants, tolerance=0.02),
                "sparkperf, tolerance 0": partial(absolute, constants=constants, tolerance=0.0),
                "one request": partial(peer_absolute, rule=peers.one_request_over(100), requests=1),
                "best of three": partial(peer_absolute, rule=peers.best_of_three_over(100), requests=3),
            },
        ),
        Table(
            "BASELINE of ten runs, max_slowdown 0.05",
            (0.0, -0.05, -0.08),
            {
                "sparkperf": partial(baseline, constants=constants),
                "pytest-benchmark mean:5%": partial(
                    peer_baseline, rule=peers.mean_time_within(0.05), requests=5
                ),
                "github-action-benchmark 200 %": partial(
                    peer_baseline, rule=peers.action_200_percent, requests=5
                ),
                "best of three, 5 %": partial(
                    peer_baseline, rule=peers.best_of_three_within(0.05), requests=3
                ),
                "Welch 90 %, 5 %, 3 x 8": partial(peer_baseline, rule=peers.welch_within(0.05), requests=24),
            },
        ),
        Table(
            "A/B, max_slowdown 0.03",
            (0.0, -0.03, -0.05),
            {
                "sparkperf": partial(paired, constants=constants),
                "sparkperf by restart": partial(by_restart, constants=constants),
                "pytest-benchmark mean:3%, blocked": partial(
                    peer_paired, rule=peers.mean_time_within(0.03), requests=5
                ),
                "best of three, 3 %, blocked": partial(
                    peer_paired, rule=peers.best_of_three_within(0.03), requests=3
                ),
                "Welch 90 %, 3 %, 3 x 8, blocked": partial(
                    peer_paired, rule=peers.welch_within(0.03), requests=24
                ),
            },
        ),
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """One rule at one true change in one scenario, over all repetitions."""

    fail: float
    inconclusive: float
    passed: float
    requests: float

    def __str__(self) -> str:
        shares = " / ".join(f"{100 * share:.1f}" for share in (self.fail, self.inconclusive, self.passed))
        return f"{shares}; {self.requests:.0f}"


def measure(
    job: tuple[int, str, str, float, int], constants: Constants
) -> tuple[tuple[int, str, str, float, int], Cell]:
    """Repeat one cell; every repetition has a seed of its own, so results do not depend on the processes."""
    table, rule, scenario, change, repetitions = job
    trial = tables(constants)[table].rules[rule]
    outcomes: Counter[str] = Counter()
    requests = 0
    for repetition in range(repetitions):
        source = random.Random(f"{table}/{rule}/{scenario}/{change}/{repetition}")
        answer = trial(source, SCENARIOS[scenario], change)
        outcomes[answer.outcome] += 1
        requests += answer.requests
    fail, inconclusive, passed = (outcomes[name] / repetitions for name in ("FAIL", "INCONCLUSIVE", "PASS"))
    return job, Cell(fail, inconclusive, passed, requests / repetitions)


def jobs(constants: Constants, repetitions: int) -> Iterator[tuple[int, str, str, float, int]]:
    """List every cell of every table."""
    for index, table in enumerate(tables(constants)):
        for scenario in SCENARIOS:
            for rule in table.rules:
                for change in table.changes:
                    yield index, rule, scenario, change, repetitions


def results(
    constants: Constants, repetitions: int, processes: int
) -> dict[tuple[int, str, str, float, int], Cell]:
    """Measure every cell."""
    todo = list(jobs(constants, repetitions))
    with ProcessPoolExecutor(processes) as pool:
        return dict(pool.map(partial(measure, constants=constants), todo))


def render(constants: Constants, found: Mapping[tuple[int, str, str, float, int], Cell]) -> str:
    """Write the tables in Markdown."""
    lines = []
    repetitions = next(iter(found))[-1]
    for index, table in enumerate(tables(constants)):
        truths = " | ".join(f"true {100 * change:+.0f} %" for change in table.changes)
        lines += [f"### {table.title}", "", f"| scenario | rule | {truths} |"]
        lines.append("|---" * (2 + len(table.changes)) + "|")
        for scenario in SCENARIOS:
            for rule in table.rules:
                cells = [str(found[index, rule, scenario, change, repetitions]) for change in table.changes]
                lines.append(f"| {scenario} | {rule} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=4000, help="runs per cell (4000)")
    parser.add_argument("--processes", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--launch-sd", type=float, default=ASSUMED.launch_sd, help="launch term of the A/B gate (0.006)"
    )
    options = parser.parse_args()
    constants = replace(ASSUMED, launch_sd=options.launch_sd)
    print(f"FAIL / INCONCLUSIVE / PASS in %; mean requests. {options.repetitions} repetitions a cell.\n")
    print(render(constants, results(constants, options.repetitions, options.processes)))


if __name__ == "__main__":
    main()
