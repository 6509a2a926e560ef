"""A process that has imported torch and forks publishers: one a line, each in a group of its own.

The process that tries a model is forked, too: importing torch anew would take most of the time.

A line is the publisher's arguments in JSON. What is answered: its process id, and once it is over
its exit code, or minus the signal that ended it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import s3fs  # noqa: F401
import torch  # noqa: F401

from airflow_ett.publish import check, weights  # noqa: F401
from airflow_ett.publish.__main__ import main


def serve() -> None:
    """Fork a publisher for each line."""
    subprocess.run = run_forked  # type: ignore[assignment]
    print("ready", flush=True)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            publish(json.loads(line))
        os.setpgid(process, process)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def publish(arguments: list[str]) -> None:
    """Publish, say all of it on stderr, and end this process."""
    os.setpgid(0, 0)
    os.dup2(2, 1)
    code = 1
    try:
        code = main(arguments)
    finally:
        os._exit(code)


def run_forked(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """Do what the command does, ``python -m airflow_ett.publish.check``, in a child."""
    assert command[1:3] == ["-m", check.__name__], command
    process = os.fork()
    if process == 0:
        check.main(command[3:])
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return subprocess.CompletedProcess(command, status)


if __name__ == "__main__":
    serve()
