"""The registry folder: ``<registry>/<name>/<version>/`` and a file ``latest`` that names a version.

A version is prepared in a staging folder beside it and renamed into place, so readers see it whole
or not at all. A staging folder is locked by its publisher; the lock dies with the process, which is
how leftovers of a crash are told from work under way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish.registries.protocol import MANIFEST_FILE, Snapshot

LATEST_FILE = "latest"
_STAGING = ".staging-"
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


class FolderRegistry:
    """One model's folder in a registry.

    Raises :class:`ConfigurationError` for a name that is no plain file name.
    """

    def __init__(self, root: Path, name: str) -> None:
        _require_safe("name", name)
        self.folder = root.expanduser().absolute() / name
        self.folder.mkdir(parents=True, exist_ok=True)

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none.

        Raises :class:`PublishError` that names the file when it is there but damaged.
        """
        _require_safe("version", version)
        folder = self.folder / version
        if not folder.exists():
            return None
        try:
            snapshot = Snapshot(str(folder), json.loads((folder / MANIFEST_FILE).read_bytes()))
            files = {
                name: (int(told["bytes"]), str(told["sha256"]))
                for name, told in snapshot.manifest["files"].items()
            }
            _ = snapshot.age, snapshot.source_digest, snapshot.digest
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder / MANIFEST_FILE, repr(error)) from error
        for name, expected in files.items():
            try:
                found = (folder / name).stat().st_size, file_digest(folder / name)
            except OSError as error:
                raise _damaged(folder / name, repr(error)) from error
            if found != expected:
                raise _damaged(folder / name, f"bytes and SHA-256 {found}, expected {expected}")
        return snapshot

    @contextlib.contextmanager
    def staging(self, version: str) -> Iterator[Path]:
        """Give an empty folder, locked to this process, and remove what is left of it after."""
        lock, folder = self._lock_new_staging(version)
        try:
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            _lock_path(folder).unlink(missing_ok=True)
            os.close(lock)

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
        lock = os.open(self.folder / ".latest.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            latest = self._latest()
            if latest is not None and latest.version == snapshot.version:
                return True
            if latest is not None and latest.age > snapshot.age and not force:
                return False
            fresh = self.folder / ".latest.new"
            fresh.write_text(f"{snapshot.version}\n")
            _sync(fresh)
            fresh.replace(self.folder / LATEST_FILE)
            _sync(self.folder)
        finally:
            os.close(lock)
        return True

    def sweep(self) -> None:
        """Remove the staging folders of publishers that died."""
        for lock_path in self.folder.glob(f"{_STAGING}*.lock"):
            lock = _try_lock(lock_path)
            if lock is not None:
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
                lock_path.unlink(missing_ok=True)
                os.close(lock)

    def _lock_new_staging(self, version: str) -> tuple[int, Path]:
        while True:
            folder = self.folder / f"{_STAGING}{version}-{secrets.token_hex(4)}"
            path = _lock_path(folder)
            path.touch(exist_ok=False)
            lock = _try_lock(path)
            if lock is not None:
                return lock, folder

    def _latest(self) -> Snapshot | None:
        """Return what ``latest`` names, None where it names no published version."""
        try:
            folder = self.folder / (self.folder / LATEST_FILE).read_text().strip()
            snapshot = Snapshot(str(folder), json.loads((folder / MANIFEST_FILE).read_bytes()))
            _ = snapshot.version, snapshot.age
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return snapshot


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _try_lock(path: Path) -> int | None:
    """Return the locked, open file; None where it is another's or was removed meanwhile."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _require_safe(parameter: str, text: str) -> None:
    if not _SAFE.fullmatch(text) or text == LATEST_FILE:
        raise ConfigurationError(
            parameter, f"{text!r} is not made of letters, digits and . _ + - (and not 'latest')"
        )


def _damaged(file: Path, problem: str) -> PublishError:
    return PublishError(
        f"{file} of a published version is damaged ({problem}); remove {file.parent} and publish "
        "again, or choose another version"
    )
