"""Runs git in a test's repository, with a made-up user and nobody's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def git(where: Path, *arguments: str) -> str:
    """Run one git command and return what it said; raises where it fails."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": str(where / "no.gitconfig"), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *who, *arguments], cwd=where, env=env, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr}"
    return done.stdout.strip()
