"""Stops and removes every container that carries one nonce as its label, and says which would not go.

Run by path (``python -I -S container_end.py DOCKER NONCE GRACE_S``) by the supervisor of a container's
client, so it may import the standard library only. Containers are found by their label and ended by their id:
a name may belong to somebody else's.
"""

from __future__ import annotations

import subprocess
import sys
import time

LABEL = "sparkperf.nonce"
_ROUNDS = 5
_PAUSE_S = 0.2
_ASK_TIMEOUT_S = 60.0


def find(docker: str, nonce: str) -> list[str]:
    """Return the ids of the containers with this nonce, running or not; raises OSError."""
    command = [docker, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}={nonce}"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    if answer.returncode:
        raise OSError(answer.stderr.strip() or f"{docker} ps ended with status {answer.returncode}")
    return answer.stdout.split()


def end(docker: str, nonce: str, grace_s: int) -> list[str]:
    """Stop and remove them; return the ids of those that are still there."""
    for _ in range(_ROUNDS):
        left = find(docker, nonce)
        if not left:
            return []
        stop = [docker, "stop", "--time", str(grace_s), *left]
        remove = [docker, "rm", "--force", "--volumes", *left]
        for command in (stop, remove):
            subprocess.run(command, timeout=grace_s + _ASK_TIMEOUT_S, check=False)
        time.sleep(_PAUSE_S)
    return find(docker, nonce)


def main(argv: list[str]) -> int:
    """End the containers of one nonce; exit status 1 when some are left."""
    docker, nonce, grace_s = argv
    try:
        left = end(docker, nonce, int(grace_s))
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"sparkperf: containers of {nonce} could not be ended: {error}\n")
        return 1
    if left:
        sys.stderr.write(f"sparkperf: containers that do not end: {' '.join(left)}\n")
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
