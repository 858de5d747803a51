"""The docker command that runs one server: what it mounts, publishes and passes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NONCE_LABEL = "sparkperf.nonce"
USER_LABEL = "sparkperf.uid"
OWNER_LABEL = "sparkperf.owner"

_HOME = "/sparkperf"
# Where programs keep what they compiled or downloaded: the variable, and its folder in the container.
CACHES = {
    "HF_HOME": f"{_HOME}/huggingface",
    "VLLM_CACHE_ROOT": f"{_HOME}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{_HOME}/inductor",
    "TRITON_CACHE_DIR": f"{_HOME}/triton",
    "FLASHINFER_WORKSPACE_BASE": f"{_HOME}/flashinfer",
}
# An id that the image does not know has no name and no home; programs that look for them stumble.
HOME_VARIABLES = {"HOME": _HOME, "USER": "sparkperf", "LOGNAME": "sparkperf"}


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of this machine in the container."""

    source: str
    target: str
    read_only: bool = False

    @property
    def word(self) -> str:
        """The value of ``--mount``; unlike ``--volume`` it takes colons in a path."""
        return f"type=bind,source={self.source},target={self.target}{',readonly' if self.read_only else ''}"


@dataclass(frozen=True, slots=True)
class Container:
    """One container to run; ``variables`` are mostly names, whose values docker takes from its environment.

    A value on the command line would show in every list of processes.
    """

    image: str
    words: tuple[str, ...]
    port: int | str
    nonce: str
    user: str
    owner: str
    binds: tuple[Bind, ...] = ()
    variables: tuple[str, ...] = ()
    gpus: bool = True


def run_command_line(docker: str, container: Container) -> tuple[str, ...]:
    """Return the command that runs a container in the foreground and removes it when it ends.

    Never ``--privileged``, never docker's socket; published on loopback only.
    """
    program, *rest = container.words
    return (
        *(docker, "run", "--rm", "--init", "--pull", "never"),
        *("--name", f"sparkperf-{container.nonce[:12]}"),
        *("--label", f"{NONCE_LABEL}={container.nonce}"),
        *("--label", f"{USER_LABEL}={container.user.partition(':')[0]}"),
        *("--label", f"{OWNER_LABEL}={container.owner}"),
        *(("--gpus", "all") if container.gpus else ()),
        "--ipc=host",
        *("--user", container.user),
        *("--publish", f"127.0.0.1:{container.port}:{container.port}"),
        *_repeated("--mount", [bind.word for bind in container.binds]),
        *_repeated("--env", container.variables),
        *("--entrypoint", program, container.image),
        *rest,
    )


def parse_mount(text: str) -> Bind:
    """Read ``HOST:CONTAINER`` or ``HOST:CONTAINER:ro``."""
    source, target, *mode = text.split(":")
    return Bind(source, target, mode == ["ro"])


def _repeated(option: str, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (option, value))
