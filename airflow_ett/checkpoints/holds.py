"""Holds: whoever reads a running training's checkpoint keeps its trainer from removing it.

A hold is a file ``.held-<holder>`` in the checkpoint's folder that tells until when (UTC
nanoseconds). Its holder removes it; one that has died holds it no longer than that. A trainer heeds
holds as long as there is room: where its disk is full it keeps one checkpoint alone.
"""

from __future__ import annotations

import contextlib
import time

from airflow_ett.checkpoints.layout import MARKER, Folder, folder, listing
from airflow_ett.errors import CheckpointError

LONGEST_S = 6 * 3600.0
"""A publisher may wait in a queue before it reads."""

_PREFIX = ".held-"


def take(uri: str, holder: str) -> None:
    """Hold a committed checkpoint; ``holder`` is the holder's own name, letters and digits.

    Raises :class:`CheckpointError` where it has gone meanwhile, ``OSError`` where it cannot be
    held, :class:`ConfigurationError` where it cannot be reached at all.
    """
    path = folder(uri)
    if not path.is_dir():
        raise CheckpointError(f"checkpoint {path}: no such folder")
    until_ns = time.time_ns() + int(LONGEST_S * 1e9)
    (path / f"{_PREFIX}{holder}").write_bytes(str(until_ns).encode())
    if not (path / MARKER).is_file():  # its trainer was removing it, and has not seen the hold
        release(uri, holder)
        raise CheckpointError(f"checkpoint {path}: removed by its trainer")


def release(uri: str, holder: str) -> None:
    """Hold the checkpoint no more; nothing happens where it is not held, or cannot be reached."""
    with contextlib.suppress(OSError):
        (folder(uri) / f"{_PREFIX}{holder}").unlink(missing_ok=True)


def is_held(path: Folder) -> bool:
    """Return whether somebody holds the checkpoint in a folder. Raises ``OSError``."""
    now_ns = time.time_ns()
    for file in listing(path):
        if file.name.startswith(_PREFIX):
            with contextlib.suppress(OSError, ValueError):
                if int(file.read_bytes()) > now_ns:
                    return True
    return False
