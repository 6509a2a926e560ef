"""Keeps a test cluster for as long as its pipe to the test session is open, then removes it.

A session that is killed cannot clean up, but its end of the pipe closes with it. Should this
process be killed instead, the cluster goes with it all the same, and only its folder stays.

Run as ``python keeper.py FOLDER NODE...``; its stdin is the pipe, its stdout that of ``inside.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def main(folder: Path, nodes: Sequence[str]) -> None:
    """Start the namespace, wait for a word or the end of stdin, and take all away."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    namespace = subprocess.Popen(
        (
            "unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--propagation=private",
            sys.executable, str(Path(__file__).with_name("inside.py")), str(folder), *nodes,
        ),
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(1)
    os.read(0, 1)
    namespace.kill()
    namespace.wait()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
