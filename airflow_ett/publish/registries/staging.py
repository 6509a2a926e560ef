"""Folders in which a version is prepared before anybody sees it.

Each is locked by its publisher. The lock dies with the process, which is how leftovers of a crash
are told from work under way.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from airflow_ett.errors import PublishError

_PREFIX = ".staging-"


class Staging:
    """The staging folders in a folder of this host, of all publishers that share it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def on_this_host(cls) -> Staging:
        """Return this user's own place among the temporary files (``TMPDIR``).

        Raises :class:`PublishError` where that is another user's, who could change what is made.
        """
        root = Path(tempfile.gettempdir()) / f"airflow-ett-publish-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        if root.is_symlink() or root.stat().st_uid != os.getuid():
            raise PublishError(
                f"{root} belongs to another user; set TMPDIR to a folder of your own"
            )
        return cls(root)

    @contextlib.contextmanager
    def folder(self, version: str) -> Iterator[Path]:
        """Give an empty folder, locked to this process, and remove what is left of it after."""
        lock, folder = self._new(version)
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_path(folder).unlink(missing_ok=True)
            os.close(lock)

    def sweep(self) -> None:
        """Remove the folders of this user's publishers that died."""
        for path in self._root.glob(f"{_PREFIX}*.lock"):
            lock = _try_lock(path)
            if lock is not None:
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                path.unlink(missing_ok=True)
                os.close(lock)

    def _new(self, version: str) -> tuple[int, Path]:
        while True:
            folder = self._root / f"{_PREFIX}{version}-{secrets.token_hex(4)}"
            path = _lock_path(folder)
            path.touch(exist_ok=False)
            lock = _try_lock(path)
            if lock is not None:
                return lock, folder


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _try_lock(path: Path) -> int | None:
    """Return the locked, open file; None where it is another's or was removed meanwhile."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None
