"""The registry folder: ``<registry>/<name>/<version>/`` and a file ``latest`` that names a version.

A version is prepared in a staging folder beside it and renamed into place, so readers see it whole
or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import AbstractContextManager
from pathlib import Path

from airflow_ett.checkpoints.manifest import digest_file
from airflow_ett.errors import ConfigurationError
from airflow_ett.publish.registries.protocol import LATEST_FILE, MANIFEST_FILE, Snapshot
from airflow_ett.publish.registries.staging import Staging
from airflow_ett.publish.registries.whole import read_whole
from airflow_ett.publish.request import check_name


class FolderRegistry:
    """One model's folder in a registry. Raises ``OSError`` where it cannot be made."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = root.expanduser().absolute() / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._staging = Staging(self.folder)

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none.

        Raises :class:`PublishError` that names the file when it is there but damaged.
        """
        folder = self.folder / version
        if not folder.exists():
            return None
        return read_whole(folder, lambda _, name: digest_file(folder / name))

    def staging(self, version: str) -> AbstractContextManager[Path]:
        """Give an empty folder in the registry, and remove what is left of it after."""
        return self._staging.folder(version)

    def reveal(self, staged: Path, version: str) -> bool:
        """Make the staged folder visible as a version; False where another publisher was first."""
        for file in staged.iterdir():
            _sync(file)
        _sync(staged)
        try:
            staged.rename(self.folder / version)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                return False
            raise
        _sync(self.folder)
        return True

    def point_latest(self, snapshot: Snapshot, *, force: bool = False) -> bool:
        """Let ``latest`` name this version, unless it names a newer one and ``force`` is not set.

        Returns whether it names this version now.
        """
        lock = self._lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            latest = self._latest()
            if latest is not None and latest.version == snapshot.version:
                return True
            if latest is not None and latest.age > snapshot.age and not force:
                return False
            fresh = self.folder / ".latest.new"
            fresh.unlink(missing_ok=True)  # of one that died; or a link, by whoever may write here
            with fresh.open("x") as file:
                file.write(f"{snapshot.version}\n")
            _sync(fresh)
            fresh.replace(self.folder / LATEST_FILE)
            _sync(self.folder)
        finally:
            os.close(lock)
        return True

    def sweep(self) -> None:
        """Remove the staging folders of publishers that died."""
        self._staging.sweep()

    def _latest(self) -> Snapshot | None:
        """Return what ``latest`` names, None where it names no published version."""
        try:
            version = (self.folder / LATEST_FILE).read_text().strip()
            check_name("version", version)
            folder = self.folder / version
            return Snapshot.decode(str(folder), (folder / MANIFEST_FILE).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError, ConfigurationError):
            return None

    def _lock(self) -> int:
        """Open the file that those lock who move ``latest``."""
        path, flags = self.folder / ".latest.lock", os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(
                path, flags | os.O_RDWR | os.O_CREAT, 0o644
            )  # NFS locks what it may write
        except PermissionError:
            return os.open(path, flags | os.O_RDONLY)  # made by another user


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
