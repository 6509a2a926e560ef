"""Linux processes by identity: who lives, who descends from whom, who carries a mark.

A pid alone proves nothing, since the kernel uses it again; a pid with its start time does. Standard
library only, since the supervisor must start fast. Zombies count as dead.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
_KILL_ROUND_S = 0.02


class Process(NamedTuple):
    """A process of this machine: its pid and its start time in clock ticks since boot."""

    pid: int
    start: int


class Place(NamedTuple):
    """Where pids mean what they say: host name, boot id and pid namespace (containers)."""

    host: str
    boot: str
    namespace: str


def here() -> Place:
    """Return this process's place."""
    return Place(
        host=os.uname().nodename,
        boot=(_PROC / "sys/kernel/random/boot_id").read_text().strip(),
        namespace=str((_PROC / "self/ns/pid").readlink()),
    )


def identify(pid: int) -> Process | None:
    """Return the living process that has this pid now, or None."""
    stat = _stat(pid)
    return Process(pid, stat.start) if stat else None


def is_alive(process: Process) -> bool:
    """Tell whether exactly this process still runs."""
    return identify(process.pid) == process


def descendants(ancestor: int) -> set[Process]:
    """Return all living processes below ``ancestor``; complete when it is a subreaper."""
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid))}
    found: set[Process] = set()
    parents = {ancestor}
    while parents:
        children = {pid for pid, stat in stats.items() if stat.parent in parents}
        found |= {Process(pid, stats[pid].start) for pid in children}
        parents = children
    return found


def marked(variable: str, value: str) -> set[Process]:
    """Return all living processes that were started with this environment variable."""
    mark = f"{variable}={value}".encode()
    found = set()
    for pid in _pids():
        process = identify(pid)
        if process and mark in _environment(pid):
            found.add(process)
    return found


def send(process: Process, number: int) -> None:
    """Send a signal to exactly this process; nothing happens when it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        # The handle was opened first, so what is compared here is what the signal will reach.
        if is_alive(process):
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return
    finally:
        os.close(handle)


def kill_all(find: Callable[[], set[Process]], timeout_s: float) -> set[Process]:
    """Kill what ``find`` returns until it returns nothing; return what still lives at the end.

    Elders first: a parent must not see its child die and go on to end as if all were well.
    """
    deadline = time.monotonic() + timeout_s
    while living := find():
        if time.monotonic() > deadline:
            return living
        for process in sorted(living, key=lambda process: (process.start, process.pid)):
            send(process, signal.SIGKILL)
        time.sleep(_KILL_ROUND_S)
    return set()


def become_subreaper() -> None:
    """Make orphans among this process's descendants its own children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; survives an exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


class _Stat(NamedTuple):
    parent: int
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The command's name is in parentheses and may hold anything, parentheses too.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20 or fields[0] in b"ZXx":
        return None
    return _Stat(parent=int(fields[1]), start=int(fields[19]))


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
