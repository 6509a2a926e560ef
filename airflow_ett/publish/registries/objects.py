"""A registry in an object store, through fsspec, where nothing can be renamed.

::

    <place>/<name>/latest                                  the name of a version
    <place>/<name>/<version>/<12 of SHA-256>-model.safetensors
    <place>/<name>/<version>/manifest.json                 names the others, as each file's "path"

The manifest makes a version: it is put last, for one publisher alone. Two publishers whose files
differ cannot touch each other's, for their names do, too; and a retry goes on with what a publisher
that died had uploaded. ``latest`` is swapped against what it was, where the store can do that.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from airflow_ett.checkpoints import FileDigest
from airflow_ett.checkpoints.remote import RemotePath
from airflow_ett.errors import ConfigurationError, PublishError
from airflow_ett.publish.registries.protocol import LATEST_FILE, MANIFEST_FILE, Snapshot
from airflow_ett.publish.registries.staging import Staging
from airflow_ett.publish.registries.whole import read_whole
from airflow_ett.publish.request import check_name
from airflow_ett.storage.objects import ObjectStorage

_MOST_TRIES = 20

_log = logging.getLogger(__name__)


class ObjectRegistry:
    """One model's versions at a URI such as ``s3://bucket/models``.

    Credentials are those that the file system finds in the environment. Raises
    :class:`ConfigurationError` where fsspec, its package for the scheme, or the store's conditional
    put is missing.
    """

    def __init__(self, place: str, name: str) -> None:
        uri = f"{place.rstrip('/')}/{name}"
        try:
            self._store = ObjectStorage(uri)
            self._store.prove()
        except ConfigurationError as error:
            raise ConfigurationError("registry", str(error)) from error
        self._folder = RemotePath(uri)
        self._staging = Staging.on_this_host()

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none. All of it is read.

        Raises :class:`PublishError` that names the file when it is there but damaged.
        """
        if self._store.read(f"{version}/{MANIFEST_FILE}") is None:
            return None
        return read_whole(self._folder / version, self._digest)

    def staging(self, version: str) -> AbstractContextManager[Path]:
        """Give an empty folder among this host's temporary files, and remove it after."""
        return self._staging.folder(version)

    def reveal(self, staged: Path, version: str) -> bool:
        """Upload the files, then the manifest; False where another publisher was first."""
        manifest: dict[str, Any] = json.loads((staged / MANIFEST_FILE).read_bytes())
        paths = set()
        for name, digest in Snapshot("", manifest).files.items():
            path = manifest["files"][name]["path"] = _path(name, digest)
            if not self._has(f"{version}/{path}", digest):
                self._store.upload(f"{version}/{path}", staged / name)
            paths.add(path)
        content = json.dumps(manifest, indent=1).encode() + b"\n"
        if self._store.create(f"{version}/{MANIFEST_FILE}", content):
            return True
        self._withdraw(version, paths)
        return False

    def point_latest(self, snapshot: Snapshot, *, force: bool = False) -> bool:
        """Let ``latest`` name this version, unless it names a newer one and ``force`` is not set.

        Returns whether it names this version now. Where the store cannot swap, and two publishers
        do this at one moment, the older may stay: a warning says so.
        """
        if not self._store.swaps():
            _log.warning(
                "%s cannot swap a file: if two publishers end at one moment, `latest` may name the "
                "older version until one is published again.",
                self._folder,
            )
        for _ in range(_MOST_TRIES):
            # The tag first: should another write come between, it fits no more.
            tag = self._store.tag(LATEST_FILE) if self._store.swaps() else ""
            named = self._store.read(LATEST_FILE)
            latest = self._manifest(named.decode(errors="replace").strip()) if named else None
            if latest is not None and latest.version == snapshot.version:
                return True
            if latest is not None and latest.age > snapshot.age and not force:
                return False
            if self._write_latest(f"{snapshot.version}\n".encode(), named is not None, tag):
                return True
        raise PublishError(
            f"{self._folder}: {_MOST_TRIES} times another publisher has moved `latest` meanwhile"
        )

    def sweep(self) -> None:
        """Remove what publishers that died have staged on this host.

        What they uploaded stays for their retries, and perhaps an empty ``draft-…``, with which
        the store was tried; no manifest names any of it, so nobody sees it.
        """
        self._staging.sweep()

    def _digest(self, snapshot: Snapshot, name: str) -> FileDigest:
        path = f"{snapshot.version}/{_path(name, snapshot.files[name])}"
        hashed, size = hashlib.sha256(), 0
        for piece in self._store.pieces(path):
            hashed.update(piece)
            size += len(piece)
        return FileDigest(size, hashed.hexdigest())

    def _has(self, name: str, digest: FileDigest) -> bool:
        """Return whether a publisher before has uploaded a file of that name, and all of it."""
        try:
            return (self._folder / name).stat().st_size == digest.size
        except FileNotFoundError:
            return False

    def _withdraw(self, version: str, paths: set[str]) -> None:
        """Remove what was uploaded in vain; the winner's files may be the same ones."""
        winner = self._manifest(version)
        if winner is not None:
            for path in paths - {_path(name, digest) for name, digest in winner.files.items()}:
                self._store.remove(f"{version}/{path}")

    def _manifest(self, version: str) -> Snapshot | None:
        """Return what a version's manifest says, None where there is no such thing."""
        try:
            check_name("version", version)  # ``latest`` may hold anything
            content = self._store.read(f"{version}/{MANIFEST_FILE}")
            return None if content is None else Snapshot.decode(version, content)
        except (ValueError, ConfigurationError):
            return None

    def _write_latest(self, content: bytes, is_there: bool, tag: str) -> bool:
        if not is_there:
            return self._store.create(LATEST_FILE, content)
        if self._store.swaps():
            return self._store.swap(LATEST_FILE, content, tag)
        self._store.write(LATEST_FILE, content)
        return True


def _path(name: str, digest: FileDigest) -> str:
    return f"{digest.sha256[:12]}-{name}"
