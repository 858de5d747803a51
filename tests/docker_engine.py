"""A stand-in for docker on PATH, whose containers are simulators."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest_sparkperf

FAKE = Path(__file__).parent / "data" / "servers" / "fake_docker.py"
ROOT = Path(pytest_sparkperf.__file__).parents[1]


@dataclass(slots=True)
class DockerEngine:
    """The daemon and the folder whose ``docker`` talks to it."""

    folder: Path
    daemon: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path) -> DockerEngine:
        place = folder / "docker.sock"
        program = folder / "docker"
        env = f"FAKE_DOCKER={shlex.quote(str(place))}"
        program.write_text(f'#!/bin/sh\nexport {env}\nexec {sys.executable} -S {FAKE} "$@"\n')
        program.chmod(0o755)
        daemon = subprocess.Popen(
            [sys.executable, str(FAKE), "daemon", str(ROOT)],
            env={**os.environ, "FAKE_DOCKER": str(place)},
            stdin=subprocess.DEVNULL,
        )
        engine = cls(folder, daemon)
        deadline_s = time.monotonic() + 60
        while not place.exists():
            assert daemon.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        return engine

    @property
    def program(self) -> str:
        return str(self.folder / "docker")

    def calls(self, *first: str) -> list[list[str]]:
        """Return the command lines it was given, those that begin with these words."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call[: len(first)] == list(first)]

    def running(self, uid: int) -> list[str]:
        """Return the ids of running containers of a user."""
        words = ["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=sparkperf.uid={uid}"]
        return subprocess.run(
            [self.program, *words], capture_output=True, text=True, check=True
        ).stdout.split()

    def stop(self) -> None:
        self.daemon.terminate()
        self.daemon.wait(60)
