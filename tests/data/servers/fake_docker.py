"""A docker command and its daemon, of which a container is a simulator that the daemon starts.

As with the real one a container outlives the command that ran it: it is a child of the daemon.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

WITH_VALUE = (
    *("--pull", "--name", "--label", "--gpus", "--user", "--publish", "--mount", "--env", "--entrypoint"),
    *("--format", "--filter", "--time"),
)
DIGEST = "sha256:" + "d" * 64
UNKNOWN = "Error response from daemon: No such image: "


def parse(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options in front and what follows them."""
    options: dict[str, list[str]] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if name in WITH_VALUE and not equals:
            at += 1
            value = words[at]
        options.setdefault(name, []).append(value)
        at += 1
    return options, words[at:]


class Container:
    """One simulator, or a process that behaves badly."""

    def __init__(
        self, options: dict[str, list[str]], words: list[str], env: dict[str, str], root: str
    ) -> None:
        self.id = uuid.uuid4().hex * 2
        self.labels = dict(one.split("=", 1) for one in options.get("--label", []))
        self.name = options["--name"][0]
        image, *rest = words
        program = [sys.executable, "-m", "pytest_sparkperf.sim", *rest[1:]]
        if image.endswith(":dies"):
            program = [sys.executable, "-c", "print('RuntimeError: no kernel image'); raise SystemExit(1)"]
        elif image.endswith(":deaf"):
            code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
            program = [sys.executable, "-c", code]
        self.process = subprocess.Popen(
            [word if word != "0.0.0.0" else "127.0.0.1" for word in program],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": root, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def stop(self, grace_s: float) -> None:
        self.process.terminate()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Daemon(socketserver.ThreadingUnixStreamServer):
    """Keeps containers and images; notes every command line it was asked for."""

    daemon_threads = True

    def __init__(self, path: str, root: str) -> None:
        super().__init__(path, Handler)
        self.root = root
        self.calls = Path(path).with_name("calls.jsonl")
        self.images = {"vllm:1", "vllm:dies", "vllm:deaf", "vllm:conflict"}
        self.containers: dict[str, Container] = {}
        self.guard = threading.Lock()


class Handler(socketserver.StreamRequestHandler):
    server: Daemon

    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        if "signal" in asked:
            self.server.containers[asked["signal"]].process.terminate()
            return
        argv: list[str] = asked["argv"]
        self.env: dict[str, str] = asked["env"]
        with self.server.guard, self.server.calls.open("a") as calls:
            calls.write(json.dumps(argv) + "\n")
        command = argv[0]
        self.say("exit", getattr(self, f"do_{command}")(argv[1:]))

    def say(self, kind: str, what: Any) -> None:
        self.wfile.write(json.dumps([kind, what]).encode() + b"\n")
        self.wfile.flush()

    def do_image(self, words: list[str]) -> int:
        _, (name,) = parse(words[1:])
        if name == "vllm:broken":
            self.say("err", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.\n")
            return 1
        if name not in self.server.images:
            self.say("err", UNKNOWN + name + "\n")
            return 1
        self.say("out", json.dumps([f"registry.example/vllm@{DIGEST}"]) + f" sha256:{'1' * 64}\n")
        return 0

    def do_pull(self, words: list[str]) -> int:
        if words[0] == "nowhere:1":
            self.say("out", "Error response from daemon: manifest for nowhere:1 not found.\n")
            return 1
        for layer in ("aaaaaaaaaaaa", "bbbbbbbbbbbb"):
            self.say("out", f"{layer}: Pulling fs layer\n")
            self.say("out", f"{layer}: Pull complete\n")
        self.server.images.add(words[0])
        return 0

    def do_run(self, words: list[str]) -> int:
        options, rest = parse(words)
        if rest[0] == "vllm:conflict":
            self.say("err", "docker: Error response from daemon: driver failed programming connectivity.\n")
            return 125
        pairs = (one.partition("=")[::2] for one in options["--env"])
        given = {name: value or self.env[name] for name, value in pairs}
        container = Container(options, rest, given, self.server.root)
        self.server.containers[container.id] = container
        try:
            self.say("id", container.id)
            assert container.process.stdout is not None
            for line in container.process.stdout:
                self.say("out", line.decode())
        except BrokenPipeError:  # the client was killed: the container goes on
            return 0
        code = container.process.wait()
        self.server.containers.pop(container.id, None)
        return code if code >= 0 else 128 - code

    def do_ps(self, words: list[str]) -> int:
        options, _ = parse(words)
        key, _, value = options["--filter"][0].removeprefix("label=").partition("=")
        for one in list(self.server.containers.values()):
            if one.labels.get(key) == value and one.process.poll() is None:
                row = one.id
                if "--quiet" not in options:
                    row += f" {one.labels['sparkperf.nonce']} {one.labels['sparkperf.owner']}"
                self.say("out", row + "\n")
        return 0

    def do_inspect(self, words: list[str]) -> int:
        _, ids = parse(words)
        for one in ids:
            self.say("out", f"{self.server.containers[one].process.pid}\n")
        return 0

    def do_stop(self, words: list[str]) -> int:
        options, ids = parse(words)
        for one in ids:
            if one in self.server.containers:
                self.server.containers[one].stop(float(options["--time"][0]))
        return 0

    def do_rm(self, words: list[str]) -> int:
        _, ids = parse(words)
        for one in ids:
            if (container := self.server.containers.pop(one, None)) is not None:
                container.process.kill()
                container.process.wait()
        return 0


def serve(path: str, root: str) -> None:
    with Daemon(path, root) as daemon:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=daemon.shutdown).start())
        daemon.serve_forever(0.05)
        for one in list(daemon.containers.values()):
            one.process.kill()
            one.process.wait()


def client(path: str, argv: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps({"argv": argv, "env": dict(os.environ)}).encode() + b"\n")
        container = ""

        def pass_on(*_: object) -> None:
            with socket.socket(socket.AF_UNIX) as other:
                other.connect(path)
                other.sendall(json.dumps({"signal": container}).encode() + b"\n")

        for line in connection.makefile("rb"):
            kind, what = json.loads(line)
            if kind == "id":
                container = what
                signal.signal(signal.SIGTERM, pass_on)
            elif kind == "exit":
                return int(what)
            else:
                stream = sys.stdout if kind == "out" else sys.stderr
                stream.write(what)
                stream.flush()
    return 1


if __name__ == "__main__":
    place = os.environ["FAKE_DOCKER"]
    if sys.argv[1] == "daemon":
        serve(place, sys.argv[2])
    else:
        sys.exit(client(place, sys.argv[1:]))
