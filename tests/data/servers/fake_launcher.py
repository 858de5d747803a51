"""Starts a simulator in the background and returns, as launchers of containers do; stops it when asked."""

import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_FOLDER"])


def main() -> int:
    way, *rest = sys.argv[1:]
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    if way == "start":
        with (FOLDER / "server.log").open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "pytest_sparkperf.sim", *rest],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (FOLDER / "pid").write_text(str(server.pid))
        return 0
    if way == "ready":
        return 0 if (FOLDER / "server.log").read_bytes() else 1
    if way == "stop":
        os.kill(int((FOLDER / "pid").read_text()), 15)
        return 0
    if way == "fail":
        sys.stderr.write("no such cluster\n")
        return 3
    time.sleep(600)
    return 0


sys.exit(main())
