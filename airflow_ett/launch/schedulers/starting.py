"""Starting a supervisor exactly once per app, whoever dies in between.

The start lock is held by whoever starts and is inherited by the supervisor, which releases it once
it has recorded itself: a free lock without a status means that nobody is starting the app.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from airflow_ett import config
from airflow_ett.errors import LaunchError
from airflow_ett.launch.schedulers.appdir import MARK, AppDir

START_S = 30.0
"""Seconds after which a start counts as failed."""

_HIDDEN = re.compile(r"_?AIRFLOW__|AIRFLOW_(CONN|VAR)_")
_LOCK_POLL_S = 0.02
# The supervisor must not see site-packages: it starts faster, and nothing there can break it.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from airflow_ett.launch.schedulers.supervisor import main; "
    "main(sys.argv[2], int(sys.argv[3]))"
)


def start(app: AppDir, lock: int) -> None:
    """Start the supervisor and return once it has recorded itself; it inherits ``lock``.

    Raises :class:`LaunchError` with what the supervisor said, ``OSError`` and
    ``subprocess.TimeoutExpired``.
    """
    package = Path(config.__file__).parents[1]
    arguments = [str(package), str(app.path), str(lock)]
    with app.supervisor_log.open("ab") as output:
        starter = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=_environment(),
            cwd="/",
            pass_fds=(lock,),
            start_new_session=True,
        )
    if starter.wait(timeout=START_S) != 0:
        tail = app.supervisor_log.read_text(errors="replace")[-2000:]
        raise LaunchError(f"the supervisor of {app.path.name} did not start: {tail.strip()}")


def _environment() -> dict[str, str]:
    """The submitter's environment as replicas may see it."""
    hidden = {name for name in os.environ if _HIDDEN.match(name)} | {MARK}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


@contextlib.contextmanager
def locked(app: AppDir, *, wait_s: float, shared: bool = False) -> Iterator[int | None]:
    """Hold the app's start lock; yields None while a start holds it or has just succeeded.

    A shared lock only looks: it is refused by a start and by nobody else.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    handle = os.open(app.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle if _acquire(app, handle, kind, wait_s) else None
    finally:
        os.close(handle)


def _acquire(app: AppDir, handle: int, kind: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline or app.started():
            return False
        time.sleep(_LOCK_POLL_S)
