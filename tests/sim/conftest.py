"""Fixtures of the tests that start processes; whatever they started is gone after each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostile_servers import Parent

from pytest_sparkperf.adapters.process import ProcessSpec, SupervisedProcess


@pytest.fixture
def record_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    return folder


@pytest.fixture
def start_process(tmp_path: Path, record_folder: Path) -> Iterator[Callable[..., SupervisedProcess]]:
    started: list[SupervisedProcess] = []

    def start_one(*argv: str, stop_timeout_s: float = 0.2) -> SupervisedProcess:
        log = tmp_path / f"{len(started)}.log"
        env = dict(os.environ)
        spec = ProcessSpec(
            (sys.executable, *argv), env, log, stop_timeout_s=stop_timeout_s, record_dir=record_folder
        )
        started.append(SupervisedProcess.start(spec))
        return started[-1]

    yield start_one
    for process in started:
        process.stop()


@pytest.fixture
def start_parent(tmp_path: Path, record_folder: Path) -> Iterator[Callable[[str], Parent]]:
    made: list[Parent] = []

    def make(way: str) -> Parent:
        made.append(Parent(tmp_path, record_folder, way))
        return made[-1]

    yield make
    for one in made:
        one.close()
