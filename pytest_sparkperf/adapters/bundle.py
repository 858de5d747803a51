"""What a check of a machine read, kept in a folder so that it can be judged elsewhere.

``commands.json`` holds what each program said, ``root/`` the files of the system. Nothing that names the
machine, its owner or its parts is kept: serial numbers and UUIDs are blanked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sparkperf.adapters.command import Answer, Run, run_command
from pytest_sparkperf.core.errors import ConfigError

FILES = ("proc/meminfo", "proc/loadavg", "proc/cpuinfo", "etc/os-release", "sys/devices/system/cpu/present")
_COMMANDS = "commands.json"
_LARGEST = 1 << 20
_NAMING = re.compile(
    r"(?im)(\bserial\b[^:\n]*:\s*)\S+|\b((?:GPU|MIG)-)[0-9a-f]{8}-[0-9a-f-]{27,}|(\buuid\b[^:\n]*:\s*)\S+"
)
_NOT_KEPT = "this program was not asked when the bundle was written"


@dataclass(slots=True)
class RecordingRun:
    """Runs programs and keeps what they said."""

    run: Run = run_command
    said: dict[str, dict[str, object]] = field(default_factory=dict)

    def __call__(self, arguments: Sequence[str], timeout_s: float) -> Answer:
        """Run one program and return its answer."""
        answer = self.run(arguments, timeout_s)
        self.said[" ".join(arguments)] = {
            "status": answer.status,
            "stdout": _nameless(answer.text),
            "stderr": _nameless(answer.stderr.decode("utf-8", "replace")),
            "problem": answer.problem,
            "absent": answer.absent,
        }
        return answer

    def write(self, folder: Path, root: Path = Path("/")) -> None:
        """Write what was said and the system's files; raises ConfigError when the folder cannot be used."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _COMMANDS).write_text(json.dumps(self.said, indent=2), encoding="utf-8")
            for name in FILES:
                text = _read(root / name)
                if text is not None:
                    path = folder / "root" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(_nameless(text), encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(
                f"{str(folder)!r} cannot hold the bundle: {reason}; name another folder"
            ) from None


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """Answers for programs from a bundle."""

    said: dict[str, dict[str, object]]

    @classmethod
    def read(cls, folder: Path) -> ReplayedRun:
        """Read a bundle; raises ConfigError when the folder holds none."""
        try:
            return cls(dict(json.loads((folder / _COMMANDS).read_text("utf-8"))))
        except (OSError, ValueError, TypeError):
            raise ConfigError(
                f"{str(folder)!r} holds no bundle; name a folder that `sparkperf doctor --bundle` wrote"
            ) from None

    def __call__(self, arguments: Sequence[str], timeout_s: float) -> Answer:  # noqa: ARG002
        """Return what the program said then."""
        kept = self.said.get(" ".join(arguments))
        if kept is None:
            return Answer(None, problem=_NOT_KEPT)
        status, problem = kept["status"], kept["problem"]
        return Answer(
            status if isinstance(status, int) else None,
            str(kept["stdout"]).encode(),
            str(kept["stderr"]).encode(),
            None if problem is None else str(problem),
            bool(kept["absent"]),
        )


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return None


def _nameless(text: str) -> str:
    return _NAMING.sub(lambda match: f"{match[1] or match[2] or match[3]}(not kept)", text)
