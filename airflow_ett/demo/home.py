"""The demo's folder: locked while a demo runs, emptied for the next one, never anybody else's."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_ett.demo.processes import end, of_stack
from airflow_ett.errors import ConfigurationError, DemoError

_LOCK = "airflow-ett-demo.lock"
_NEEDED_BYTES = 2_000_000_000
_GRACE_S = 5.0


@contextmanager
def demo_home(home: Path) -> Iterator[Path]:
    """Hold the folder ``home`` for one demo and yield its absolute path, emptied but for the data.

    What a demo that crashed left running there is ended. Raises :class:`ConfigurationError` when
    the folder is somebody else's or cannot be written, :class:`DemoError` when a demo runs in it
    or the disk is full.
    """
    home = home.expanduser().absolute()
    if home.is_dir() and any(home.iterdir()) and not (home / _LOCK).is_file():
        raise ConfigurationError("--home", f"{home} is not empty and no demo made it")
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigurationError("--home", f"{home} cannot be used: {error.strerror}") from error
    try:
        _lock(handle, home)
        end(lambda: of_stack(home), _GRACE_S)
        _empty(home)
        _check_space(home)
        yield home
    finally:
        os.close(handle)


def _lock(handle: int, home: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DemoError(f"another demo runs in {home}: stop it or give --home") from None


def _empty(home: Path) -> None:
    """Remove the last demo's files; the data, once fetched, stays."""
    for path in home.iterdir():
        if path.name == "ett":
            _remove(*(part for part in path.iterdir() if part.name != "data"))
        elif path.name != _LOCK:
            _remove(path)


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_space(home: Path) -> None:
    free = shutil.disk_usage(home).free
    if free < _NEEDED_BYTES:
        raise DemoError(
            f"not enough disk space: {free / 1e9:.1f} GB free at {home}, "
            f"{_NEEDED_BYTES / 1e9:.0f} GB needed"
        )
