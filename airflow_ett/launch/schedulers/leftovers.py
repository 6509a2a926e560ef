"""What ``local_detached`` keeps of apps that are over: what of it may be removed, and doing so.

An app's folder is renamed before it is emptied: at every instant there is the whole app or none,
and what a killed removal has left is removed by the next one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from airflow_ett.launch.schedulers.appdir import TERMINAL, AppDir
from airflow_ett.launch.schedulers.processes import here
from airflow_ett.launch.schedulers.starting import locked

_REMOVED = ".removed-"


class Leftover(NamedTuple):
    """An app that is over: its name and folder, when it ended (UTC ns), the bytes of its files."""

    app: str
    path: Path
    ended_ns: int
    bytes: int


def leftovers(state_dir: Path, before_ns: int) -> Iterator[Leftover]:
    """Yield the apps of a state directory that ended before then and of which nothing lives."""
    for path in sorted(state_dir.iterdir()) if state_dir.is_dir() else []:
        if path.name.startswith(".") or path.is_symlink() or not path.is_dir():
            continue
        status = AppDir(path).read_status()
        if status is None or status.state not in TERMINAL or status.app != path.name:
            continue
        if status.ended_ns is not None and status.ended_ns < before_ns:
            yield Leftover(path.name, path, status.ended_ns, _size(path))


def remove(leftover: Leftover) -> bool:
    """Remove an app's folder; False where somebody is at it or it is gone. Raises ``OSError``.

    What cannot be emptied is left to :func:`sweep`.
    """
    app = AppDir(leftover.path)
    status = app.read_status()
    if status is None or (status.place == here() and app.processes()):
        return False
    with suppress(FileNotFoundError), locked(app, wait_s=0) as lock:
        if lock is None:
            return False
        aside = app.path.with_name(f"{_REMOVED}{app.path.name}.{os.getpid()}")
        app.path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
        return True
    return False


def sweep(state_dir: Path) -> None:
    """Remove what a killed removal has left. Raises ``OSError``."""
    for path in state_dir.glob(f"{_REMOVED}*"):
        if not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _size(folder: Path) -> int:
    total = 0
    for parent, _folders, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(parent) / name).lstat().st_size
    return total
