"""Starts one supervised server, as a test run would, and waits to be ended.

Usage: parent.py LOG RECORDS [fork|wait] -- ARGV... With ``fork`` a child keeps copies of all pipes. Prints
the pids of server, supervisor and child, and leaves by os._exit at the first byte on stdin.
"""

import os
import sys
import time
from pathlib import Path

from pytest_sparkperf.adapters.process import ProcessSpec, SupervisedProcess


def main(log: str, records: str, way: str, argv: list[str]) -> None:
    spec = ProcessSpec(tuple(argv), dict(os.environ), Path(log), stop_timeout_s=0.2, record_dir=Path(records))
    process = SupervisedProcess.start(spec)
    child = 0
    if way == "fork":
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    sys.stdout.write(f"{process.pid} {process.supervisor_pid} {child}\n")
    sys.stdout.flush()
    sys.stdin.read(1)
    os._exit(3)


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[sys.argv.index("--") + 1 :])
