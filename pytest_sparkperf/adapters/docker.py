"""Runs a server in a container: the image at hand, its digest known, and nothing left of it afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sparkperf.adapters import container_end
from pytest_sparkperf.adapters.command import Answer, Run, run_command
from pytest_sparkperf.adapters.proctable import descendants, read_process, read_table
from pytest_sparkperf.core.container import (
    CACHES,
    HOME_VARIABLES,
    NONCE_LABEL,
    OWNER_LABEL,
    USER_LABEL,
    Bind,
    Container,
    parse_mount,
    run_command_line,
)
from pytest_sparkperf.core.errors import ServerError

# The daemon may be busy with a pull or a removal.
_ASK_TIMEOUT_S = 60.0
_PROGRESS_S = 10.0
_LAYER = re.compile(r"([0-9a-f]{12}): (.+)")
_LAYER_DONE = ("Pull complete", "Already exists")
_CLIENTS = ("HOME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT")
# Passed on where the user has them set; they say how models are fetched.
_HUB_VARIABLES = ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True, slots=True)
class Image:
    """An image that this machine has; ``digest`` is that of its registry, else its own id."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class LeftContainer:
    """A container of an earlier run of this user, whose run is dead."""

    id: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Docker:
    """The docker command of this machine."""

    program: str
    run: Run = run_command

    @classmethod
    def find(cls, target: str, path: str | None = None) -> Docker:
        """Return the docker on PATH; raises ServerError when there is none."""
        program = shutil.which("docker", path=path)
        if program is None:
            raise ServerError(
                f"target {target!r} runs in a container, and there is no docker on PATH; install docker, or "
                "use launch: vllm with a vLLM of this machine."
            )
        return cls(program)

    def image(self, name: str, *, may_pull: bool, progress: Callable[[str], None]) -> Image:
        """Return an image, pulled if need be; raises ServerError when it cannot be had."""
        found = self._inspect(name)
        if found is None:
            if not may_pull:
                raise ServerError(
                    f"image {name!r} is not on this machine, and with CI set nothing is downloaded; run "
                    f"`docker pull {name}` on the runner beforehand."
                )
            self._pull(name, progress)
            found = self._inspect(name)
        if found is None:
            raise ServerError(f"image {name!r} is not there although it was pulled; look at `docker images`.")
        return found

    def _inspect(self, name: str) -> Image | None:
        answer = self._ask("image", "inspect", "--format", "{{json .RepoDigests}} {{.Id}}", name)
        if answer.status == 0:
            digests, _, own = answer.text.strip().rpartition(" ")
            known = json.loads(digests or "null") or []
            return Image(name, next((one.partition("@")[2] for one in known), own))
        if "no such image" in answer.complaint.lower():
            return None
        raise ServerError(
            f"docker does not answer: {answer.complaint.rstrip('.')}; check that its daemon runs and that "
            "you may use it."
        )

    def _pull(self, name: str, progress: Callable[[str], None]) -> None:
        command = [self.program, "pull", name]
        told_s, layers, last = time.monotonic() - _PROGRESS_S, dict[str, str](), ""
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as pull:
            assert pull.stdout is not None
            for line in pull.stdout:
                last = line.strip() or last
                if (layer := _LAYER.fullmatch(last)) is not None:
                    layers[layer[1]] = layer[2]
                if time.monotonic() - told_s >= _PROGRESS_S:
                    told_s = time.monotonic()
                    done = sum(state in _LAYER_DONE for state in layers.values())
                    progress(f"pulling image {name!r}: {done} of {len(layers)} layers")
        if pull.returncode:
            raise ServerError(f"image {name!r} could not be pulled: {last.rstrip('.')}; check its name.")

    def pids(self, nonce: str) -> list[int] | None:
        """Return the processes of the containers with a nonce; None where docker does not tell."""
        ids = self._ask(
            "ps", "--quiet", "--no-trunc", "--filter", f"label={NONCE_LABEL}={nonce}"
        ).text.split()
        answer = self._ask("inspect", "--format", "{{.State.Pid}}", *ids)
        if not ids or answer.status != 0:
            return None
        roots = [int(pid) for pid in answer.text.split() if pid.isdigit()]
        table = read_table()
        return [*roots, *(entry.pid for root in roots for entry in descendants(root, table))]

    def leftovers(self) -> list[LeftContainer]:
        """Return containers of dead runs of this user; those of which nothing is known are left alone."""
        label = f"{USER_LABEL}={os.getuid()}"
        form = "{{.ID}} " + " ".join(f'{{{{.Label "{name}"}}}}' for name in (NONCE_LABEL, OWNER_LABEL))
        answer = self._ask("ps", "--all", "--no-trunc", "--filter", f"label={label}", "--format", form)
        if answer.status != 0:
            return []
        rows = (line.split() for line in answer.text.splitlines())
        return [LeftContainer(row[0], row[1]) for row in rows if len(row) == 3 and not _may_live(row[2])]

    def end(self, container: LeftContainer, grace_s: float = 10.0) -> bool:
        """Stop and remove a container; say whether it is gone."""
        timeout_s = grace_s + _ASK_TIMEOUT_S
        return self.run(end_command(self.program, container.nonce, grace_s), timeout_s).status == 0

    def _ask(self, *words: str) -> Answer:
        return self.run((self.program, *words), _ASK_TIMEOUT_S)


def end_command(program: str, nonce: str, grace_s: float) -> tuple[str, ...]:
    """Return the command that ends every container of a nonce, whoever runs it."""
    return (sys.executable, "-I", "-S", container_end.__file__, program, nonce, str(max(1, round(grace_s))))


def container_line(
    docker: Docker, image: Image, words: Sequence[str], *, port: int, nonce: str, place: ContainerPlace
) -> tuple[str, ...]:
    """Return the command that runs a server's words in a container of the image."""
    container = Container(
        image=image.name,
        words=tuple(words),
        port=port,
        nonce=nonce,
        user=f"{os.getuid()}:{os.getgid()}",
        owner=owner_word(),
        binds=place.binds,
        variables=place.variables,
    )
    return run_command_line(docker.program, container)


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """What a container sees of this machine: folders and variables.

    ``env`` goes through docker's own environment, by name; ``shown`` are values on its command line.
    """

    binds: tuple[Bind, ...]
    env: Mapping[str, str]
    shown: Mapping[str, str]

    @property
    def variables(self) -> tuple[str, ...]:
        """The values of ``--env``."""
        return (*(f"{name}={value}" for name, value in self.shown.items()), *self.env)


def make_folders(place: ContainerPlace) -> None:
    """Make the folders of caches; docker would make missing ones itself, as root's."""
    for bind in place.binds:
        if bind.target in CACHES.values():
            Path(bind.source).mkdir(parents=True, exist_ok=True)


def place_for(
    model: str | None, mounts: Sequence[str], env: Mapping[str, str], environ: Mapping[str, str]
) -> ContainerPlace:
    """Return the caches, the model's folder and the user's mounts, and the variables."""
    cache = Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    binds = []
    for name, target in CACHES.items():
        own = cache / "pytest-sparkperf" / "containers" / Path(target).name
        folder = Path(environ.get("HF_HOME") or cache / "huggingface") if name == "HF_HOME" else own
        binds.append(Bind(str(folder.absolute()), target))
    if model is not None and Path(model).is_absolute():
        binds.append(Bind(model, model, read_only=True))
    binds += map(parse_mount, mounts)
    passed = {name: environ[name] for name in _HUB_VARIABLES if name in environ}
    shown = {**HOME_VARIABLES, **CACHES}
    # These would change what the docker command itself does.
    shown |= {name: value for name, value in env.items() if name in _CLIENTS or name in shown}
    through = {name: value for name, value in {**passed, **env}.items() if name not in shown}
    return ContainerPlace(tuple(binds), through, shown)


def owner_word() -> str:
    """Return who runs the container: this process, its start and its view of process ids."""
    own = read_process(os.getpid())
    return f"{os.getpid()}.{0 if own is None else own.start}.{_pid_view()}"


def _may_live(owner: str) -> bool:
    """Say whether a run may still be alive; of one that sees other pids than we do nothing is known."""
    try:
        pid, start, view = owner.split(".")
        entry = read_process(int(pid))
    except ValueError:
        return True
    return view != _pid_view() or (entry is not None and entry.start == int(start))


def _pid_view() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
