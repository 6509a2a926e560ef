"""Finding and ending every process that a stack started, found by a variable in its environment.

A variable is inherited by all descendants, survives double forks and new sessions, and cannot be
mistaken for another's after a process number was used again. Linux only, as is the demo.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from airflow_ett.launch.schedulers.processes import Process, identify, marked, send

MARKER = "AIRFLOW_ETT_STACK"
"""Variable that every process of a stack carries; its value is the stack's home."""

_KILL_LIMIT_S = 5.0
_PAUSE_S = 0.05


def of_stack(home: Path) -> set[Process]:
    """Return the live processes that belong to the stack at ``home``.

    Processes of other users cannot be read and are never among them.
    """
    return marked(MARKER, str(home))


def of_session(leader: int) -> set[Process]:
    """Return the live processes in the session that ``leader`` began."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        process = identify(int(entry.name))
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if process and int(fields[3]) == leader:
            found.add(process)
    return found


def end(find: Callable[[], set[Process]], grace_s: float) -> set[Process]:
    """Send SIGTERM to what ``find`` returns, after ``grace_s`` seconds SIGKILL.

    Returns the processes that are still there some seconds later; normally none.
    """
    for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_LIMIT_S)):
        deadline = time.monotonic() + limit_s
        told: set[Process] = set()
        while alive := find():
            for process in alive - told:
                send(process, number)
            told |= alive
            if time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE_S)
        else:
            return set()
    return find()
