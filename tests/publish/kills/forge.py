"""A process that has imported torch and forks publishers: one a line, each in a group of its own.

The process that tries a model is forked, too: importing torch anew would take most of the time.

A line is in JSON what :func:`publish` takes. What is answered: the publisher's process id, and once
it is over its exit code, or minus the signal that ended it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import s3fs  # noqa: F401
import torch  # noqa: F401

from airflow_ett.publish import check, weights  # noqa: F401
from airflow_ett.publish.__main__ import main

_run = subprocess.run


def serve() -> None:
    """Fork a publisher for each line."""
    subprocess.run = run_forked  # type: ignore[assignment]
    print("ready", flush=True)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            publish(**json.loads(line))
        os.setpgid(process, process)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def publish(
    arguments: list[str], environ: dict[str, str], output: dict[str, str], first: str
) -> None:
    """Publish as a process of its own would, after the code ``first``, and end this process.

    ``output`` names the files for what is said, by their number; else all of it is said on stderr.
    """
    os.setpgid(0, 0)
    os.dup2(2, 1)
    for number, path in output.items():
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), int(number))
    become(environ)
    leave_after(lambda: exec(first, {}) or main(arguments))


def become(environ: Mapping[str, str]) -> None:
    """Have this process be as if it had started in an environment."""
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = environ.get("PYTHONPATH", "").split(os.pathsep)
    tempfile.tempdir = None


def leave_after(work: Callable[[], Any]) -> None:
    """End this process after some work, and with it nothing of the one it was forked from."""
    code: Any = 1
    try:
        code = work()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def run_forked(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Do what the command does, ``python -m airflow_ett.publish.check``, in a child."""
    if command[1:3] != ["-m", check.__name__]:
        return _run(command, **how)
    process = os.fork()
    if process == 0:
        os.closerange(3, 1024)  # the publisher's locks end with it
        become(how["env"])
        leave_after(lambda: check.main(command[3:]))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return subprocess.CompletedProcess(command, status)


if __name__ == "__main__":
    serve()
