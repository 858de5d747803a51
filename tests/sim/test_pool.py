"""Each variant starts once per run, and no more are up than there is room for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_sparkperf.adapters.readiness import Surroundings
from pytest_sparkperf.adapters.server import Server, start_server
from pytest_sparkperf.core.errors import ServerError
from pytest_sparkperf.core.frozen import FrozenMap
from pytest_sparkperf.core.gate import parse_mark
from pytest_sparkperf.core.memory import GIB
from pytest_sparkperf.core.order_of_starts import fewest_starts, server_needs
from pytest_sparkperf.core.targets import Target
from pytest_sparkperf.core.variant import Variant, make_variant
from pytest_sparkperf.experiment.pool import Room, ServerPool

SIM = Target("sim", "sim", args=FrozenMap({"max-num-seqs": 2}))
PINNED = Target("real", "vllm", model="m", args=FrozenMap({"kv-cache-memory-bytes": 1 << 30}))
HUNGRY = Target("hungry", "vllm", model="m")


@dataclass(slots=True)
class FakeServers:
    """Notes starts and stops in order; a started server takes ``size`` bytes."""

    size: int = 10 * GIB
    free: int = 100 * GIB
    notes: list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)

    def start(self, variant: Variant) -> Server:
        name = variant.describe()
        self.notes.append(f"+{name}")
        self.free -= self.size
        return _Fake(name, name, variant.k, FrozenMap(), owner=self)


@dataclass(frozen=True)
class _Fake(Server):
    owner: FakeServers = field(default_factory=FakeServers)

    def alive(self) -> bool:
        return self.url not in self.owner.dead

    def stop(self) -> None:
        self.owner.notes.append(f"-{self.url}")
        self.owner.dead.discard(self.url)
        self.owner.free += self.owner.size


@pytest.fixture
def servers() -> FakeServers:
    return FakeServers()


def test_three_variants_over_twelve_shuffled_tests_start_three_servers_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    specs = [parse_mark({"k": k}) for k in (0, 1, 3) for _ in range(4)]
    random.Random(3).shuffle(specs)
    order = fewest_starts(["m"] * 12, [server_needs(spec) for spec in specs], max_resident=1)
    variants = [make_variant(SIM, k=specs[index].k) for index in order]
    started: list[Server] = []

    def start(variant: Variant) -> Server:
        assert not any(server.alive() for server in started)
        started.append(start_server(variant, log_dir=tmp_path / "logs", outside=Surroundings()))
        return started[-1]

    pool = ServerPool(start, variants, room=Room(max_resident=1))
    seen = []
    for variant in variants:
        seen.append(pool.get(variant).k)
        pool.done(variant)

    assert len(started) == 3
    assert seen == [variant.k for variant in variants]
    assert not any(server.alive() for server in started)


def pool_of(servers: FakeServers, expected: list[Variant], **room: int) -> ServerPool:
    limits = Room(room.get("max_resident", 2), lambda: servers.free, room.get("reserve", 0))
    return ServerPool(servers.start, expected, room=limits)


def test_two_servers_of_a_comparison_start_one_after_the_other_and_stay(servers: FakeServers) -> None:
    a, b = make_variant(PINNED, k=0), make_variant(PINNED, k=3)
    pool = pool_of(servers, [a, b])

    assert [server.k for server in pool.get_all({"A": a, "B": b}).values()] == [0, 3]
    pool.get_all({"A": a, "B": b})

    assert servers.notes == ["+real k=0", "+real k=3"]
    pool.done(a)
    pool.done(b)
    assert servers.notes[2:] == ["-real k=0", "-real k=3"]


def test_a_server_whose_kv_memory_is_not_pinned_is_alone(servers: FakeServers) -> None:
    a, b = make_variant(HUNGRY, k=0), make_variant(PINNED, k=3)
    pool = pool_of(servers, [a, b, a])

    pool.get(a)
    pool.get(b)

    assert servers.notes == ["+hungry k=0", "-hungry k=0", "+real k=3"]


def test_the_server_that_is_needed_last_makes_room(servers: FakeServers) -> None:
    a, b, c = (make_variant(PINNED, k=k) for k in (0, 1, 2))
    pool = pool_of(servers, [a, b, c, a, b])
    for variant in (a, b, c):
        pool.get(variant)
        pool.done(variant)

    assert servers.notes == ["+real k=0", "+real k=1", "-real k=1", "+real k=2", "-real k=2"]


def test_memory_decides_how_many_are_up(servers: FakeServers) -> None:
    a, b = make_variant(PINNED, k=0), make_variant(PINNED, k=1)
    servers.free = 19 * GIB
    pool = pool_of(servers, [a, b, a])

    pool.get(a)
    pool.get(b)

    assert servers.notes == ["+real k=0", "-real k=0", "+real k=1"]


def test_two_servers_that_do_not_fit_together_are_refused_with_the_figures(servers: FakeServers) -> None:
    a, b = make_variant(PINNED, k=0), make_variant(PINNED, k=3)
    servers.free = 21 * GIB
    pool = pool_of(servers, [a, b], reserve=2 * GIB)

    with pytest.raises(ServerError) as caught:
        pool.get_all({"A": a, "B": b})

    assert str(caught.value) == (
        "server 'real k=3' needs about 10.0 GiB beside 'real k=0', and this machine has no room for it (11.0 "
        "GiB available, 2.0 GiB to spare); lower kv-cache-memory-bytes and gpu-memory-utilization in "
        "`resident` of target 'real'"
    )


def test_a_server_that_died_is_started_again(servers: FakeServers) -> None:
    a = make_variant(PINNED, k=0)
    pool = pool_of(servers, [a])
    pool.get(a)
    servers.dead.add("real k=0")

    pool.get(a)

    assert servers.notes == ["+real k=0", "-real k=0", "+real k=0"]


def test_attached_servers_take_no_room_and_are_never_stopped_for_it(servers: FakeServers) -> None:
    there = make_variant(Target("a", "attach", urls=((None, "http://h:1"),)))
    a, b = make_variant(HUNGRY, k=0), make_variant(HUNGRY, k=1)
    pool = pool_of(servers, [there, a, b], max_resident=1)
    for variant in (there, a, b):
        pool.get(variant)
        pool.done(variant)

    assert servers.notes == ["+a", "+hungry k=0", "-hungry k=0", "+hungry k=1", "-hungry k=1"]


def test_all_are_stopped_even_when_one_cannot_be(servers: FakeServers) -> None:
    a, b = make_variant(PINNED, k=0), make_variant(PINNED, k=1)

    def start(variant: Variant) -> Server:
        server = servers.start(variant)
        if variant == b:
            object.__setattr__(server, "stop", _fails)
        return server

    pool = ServerPool(start, [a, b])
    pool.get_all({"A": a, "B": b})

    with pytest.raises(ServerError, match="no"):
        pool.stop_all()

    assert servers.notes[-1] == "-real k=0"


def _fails() -> None:
    raise ServerError("no")


def test_a_start_that_failed_is_told_again_and_not_tried_again() -> None:
    tries: list[str] = []

    def start(variant: Variant) -> Server:
        tries.append(variant.describe())
        raise ServerError("it hangs while loading")

    pool = ServerPool(start)
    for _ in range(2):
        with pytest.raises(ServerError, match="it hangs while loading"):
            pool.get(make_variant(PINNED))

    assert len(tries) == 1
