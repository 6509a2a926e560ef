"""What our schedulers keep of apps that are over: what of it may be removed, and doing so.

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
    """An app that is over: its name and folder, when it ended (UTC ns), the bytes of its files.

    Of an app of ``slurm`` that is when something was last written to its folder.
    """

    app: str
    path: Path
    ended_ns: int
    bytes: int


def leftovers(state_dir: Path, before_ns: int) -> Iterator[Leftover]:
    """Yield the apps of ``local_detached`` that ended before then and of which nothing lives."""
    for path in _folders(state_dir):
        status = AppDir(path).read_status()
        if status is None or status.state not in TERMINAL or status.app != path.name:
            continue
        if status.ended_ns is not None and status.ended_ns < before_ns:
            yield Leftover(path.name, path, status.ended_ns, _size(path))


def untouched(state_dir: Path, before_ns: int) -> Iterator[Leftover]:
    """Yield the apps of ``slurm`` to whose folders nothing was written since then.

    Slurm is not asked: the job that an app belonged to tells whether it is over.
    """
    for path in _folders(state_dir):
        with suppress(FileNotFoundError):  # another removes it
            times = [found.lstat().st_mtime_ns for found in (path, *path.rglob("*"))]
            if (path / "app.json").exists() and max(times) < before_ns:
                yield Leftover(path.name, path, max(times), _size(path))


def remove_untouched(leftover: Leftover) -> bool:
    """Remove the folder of an app of ``slurm``; False where it is gone. Raises ``OSError``."""
    with suppress(FileNotFoundError):
        _remove(leftover.path)
        return True
    return False


def remove(leftover: Leftover) -> bool:
    """Remove the folder of a ``local_detached`` app; False where somebody is at it or it is gone.

    What cannot be emptied is left to :func:`sweep`. Raises ``OSError``.
    """
    app = AppDir(leftover.path)
    status = app.read_status()
    if status is None or (status.place == here() and app.processes()):
        return False
    with suppress(FileNotFoundError), locked(app, wait_s=0) as lock:
        if lock is None:
            return False
        _remove(app.path)
        return True
    return False


def sweep(state_dir: Path) -> None:
    """Remove what a killed removal has left. Raises ``OSError``."""
    for path in state_dir.glob(f"{_REMOVED}*"):
        if not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


def _folders(state_dir: Path) -> Iterator[Path]:
    for path in sorted(state_dir.iterdir()) if state_dir.is_dir() else []:
        if not path.name.startswith(".") and not path.is_symlink() and path.is_dir():
            yield path


def _remove(folder: Path) -> None:
    aside = folder.with_name(f"{_REMOVED}{folder.name}.{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _size(folder: Path) -> int:
    total = 0
    for parent, _folders, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(parent) / name).lstat().st_size
    return total
