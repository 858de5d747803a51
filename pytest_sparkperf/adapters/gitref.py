"""Reads files as a commit holds them, without a checkout, so that a change cannot bring its own baseline."""

from __future__ import annotations

import os
import posixpath
from functools import partial
from pathlib import Path

from pytest_sparkperf.adapters.baseline_text import MAX_BYTES
from pytest_sparkperf.adapters.command import Answer, Run, run_command
from pytest_sparkperf.core.errors import ConfigError

_TIMEOUT_S = 30.0
# What git says of a path that a commit does not have; everything else is a failure, and no missing file.
_ABSENT = ("does not exist in", "exists on disk, but not in")


class GitFiles:
    """Files below a folder, as one commit holds them; the commit is found when this is made.

    Raises ConfigError where there is no git, no repository, or no such ref, saying how to get it.
    """

    def __init__(self, ref: str, folder: Path, root: Path, *, run: Run | None = None) -> None:
        self._run = run or partial(run_command, cwd=root)
        self._ref = ref
        self._below = _relative(folder, root)
        self._commit = self._resolve(ref)

    @property
    def where(self) -> str:
        """The ref and the folder."""
        return f"{self._ref}:{self._below}"

    @property
    def commit(self) -> str:
        """The full name of the commit."""
        return self._commit

    def read(self, path: str) -> bytes | None:
        """Return a file's text; None where the commit has no such file, ConfigError where git fails."""
        name = f"{self._commit}:./{posixpath.normpath(f'{self._below}/{path}')}"
        size = self._git("cat-file", "-s", name)
        if size.status != 0:
            if any(words in size.complaint for words in _ABSENT):
                return None
            raise ConfigError(f"git cannot show {path!r} of {self._ref!r}: {size.complaint}")
        if size.text.strip().isdigit() and int(size.text) > MAX_BYTES:
            return b" " * (MAX_BYTES + 1)  # as long as it must be to be refused
        answer = self._git("cat-file", "blob", name)
        if answer.status != 0:
            raise ConfigError(f"git cannot show {path!r} of {self._ref!r}: {answer.complaint}")
        return answer.stdout

    def paths(self) -> list[str]:
        """Return the paths of all baseline files below the folder, sorted."""
        answer = self._git("ls-tree", "-r", "--name-only", "-z", self._commit, "--", f"./{self._below}/")
        if answer.status != 0:
            raise ConfigError(f"git cannot list {self._below!r} of {self._ref!r}: {answer.complaint}")
        prefix = f"{self._below}/"
        found = [name.removeprefix("./").removeprefix(prefix) for name in answer.text.split("\0")]
        return sorted(name for name in found if name.count("/") == 1 and name.endswith(".yaml"))

    def _git(self, *arguments: str) -> Answer:
        return self._run(("git", *arguments), _TIMEOUT_S)

    def _resolve(self, ref: str) -> str:
        if not ref or ref.startswith("-"):
            raise ConfigError(f"{ref!r} is not a git ref; give a branch, tag or commit, such as origin/main")
        answer = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        if answer.status == 0:
            return answer.text.strip()
        raise ConfigError(self._why_not(ref, answer))

    def _why_not(self, ref: str, answer: Answer) -> str:
        if answer.problem is not None:
            return f"the git ref {ref!r} cannot be read: {answer.problem}; install git, or leave out the ref"
        shallow = self._git("rev-parse", "--is-shallow-repository")
        if shallow.status != 0:
            return f"the git ref {ref!r} cannot be read: {shallow.complaint}"
        if shallow.text.strip() == "true":
            remote, _, branch = ref.partition("/")
            what = f"{remote} {branch}:refs/remotes/{ref}" if branch else f"origin {ref}"
            return (
                f"this clone is shallow and does not have the git ref {ref!r}; fetch it first: git fetch "
                f"--depth=1 {what} (in GitHub Actions: actions/checkout with fetch-depth: 0)"
            )
        return f"there is no git ref {ref!r} in this repository; fetch it first, or name another"


def head_commit(root: Path, run: Run | None = None) -> str | None:
    """Return the commit that is checked out; None where there is no git, no repository or no commit."""
    answer = (run or partial(run_command, cwd=root))(("git", "rev-parse", "--verify", "HEAD"), _TIMEOUT_S)
    return answer.text.strip() if answer.status == 0 else None


def _relative(folder: Path, root: Path) -> str:
    path = os.path.relpath(folder, root)
    if path == ".." or path.startswith("../"):
        raise ConfigError(
            f"{str(folder)!r} is outside {str(root)!r}, so no git ref of that repository holds it"
        )
    return Path(path).as_posix()
