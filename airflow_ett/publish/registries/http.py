"""A registry that is an HTTP service: files by digest, then one request that makes the version.

::

    HEAD, PUT, GET  /blobs/sha256/<digest>                 a file; the service checks its digest
    POST            /models/<name>/versions                the manifest; Idempotency-Key: its digest
    GET             /models/<name>/versions/<version>      the manifest
    POST            /models/<name>/latest                  {version, saved_ns, cursor, force}

The service makes a version when it has all of its files, and never changes it: another manifest
for the same version is answered 409. It moves ``latest`` in one step, unless that names a version
whose ``(saved_ns, cursor)`` is greater, and answers ``{"version": …}``: what it names now. So each
request may be repeated after an answer that got lost. Answers are JSON objects; those of errors
tell the reason under ``detail``.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from airflow_ett.checkpoints import FileDigest
from airflow_ett.publish.credentials import read_credentials, require_no_secrets
from airflow_ett.publish.registries.client import TIMEOUTS_S, Client
from airflow_ett.publish.registries.protocol import MANIFEST_FILE, Snapshot
from airflow_ett.publish.registries.staging import Staging

_JSON = {"Content-Type": "application/json"}


class HttpRegistry:
    """One model's versions in the service at ``url``; how it is asked: :class:`.client.Client`.

    Raises :class:`ConfigurationError` that names ``registry`` or the variable of the credentials.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        timeouts_s: tuple[float, float] = TIMEOUTS_S,
    ) -> None:
        require_no_secrets(url)
        base = url.rstrip("/")
        self._client = Client(base, read_credentials(), sleep=sleep, timeouts_s=timeouts_s)
        self._model = f"/models/{name}"
        self._staging = Staging.on_this_host()

    def find(self, version: str) -> Snapshot | None:
        """Return a published version, or None where there is none.

        The sizes of its files are compared; their digests are the service's to keep.
        """
        path = self._path(version)
        answer = self._client.ask("GET", path, accept=(200, 404))
        self._client.object_of(path, answer)
        if answer.status_code == 404:
            return None
        try:
            snapshot = Snapshot.decode(self._client.base + path, answer.content)
        except ValueError:
            self._client.garbage(path, answer)
        if snapshot.version != version:
            self._client.garbage(path, answer)
        for name, digest in snapshot.files.items():
            if not self._has(digest):
                problem = f"is damaged: {name}, {_blob(digest)}, is missing or of another size"
                self._client.fail(path, problem, "remove it there, or choose another version")
        return snapshot

    def staging(self, version: str) -> AbstractContextManager[Path]:
        """Give an empty folder among this host's temporary files, and remove it after."""
        return self._staging.folder(version)

    def reveal(self, staged: Path, version: str) -> bool:
        """Upload the files that are not there, then register; False where another was first."""
        manifest = (staged / MANIFEST_FILE).read_bytes()
        for name, digest in Snapshot.decode(version, manifest).files.items():
            if not self._has(digest):
                self._client.ask(
                    "PUT", _blob(digest), accept=(200, 201, 204), content=staged / name
                )
        path = f"{self._model}/versions"
        key = {"Idempotency-Key": hashlib.sha256(manifest).hexdigest(), **_JSON}
        answer = self._client.ask(
            "POST", path, accept=(200, 201, 409), content=manifest, headers=key
        )
        self._client.object_of(path, answer)
        return answer.status_code != 409

    def point_latest(self, snapshot: Snapshot, *, force: bool = False) -> bool:
        """Ask the service to let ``latest`` name this version; return whether it does now."""
        path = f"{self._model}/latest"
        wanted = {"version": snapshot.version, "force": force, **snapshot.age._asdict()}
        answer = self._client.ask(
            "POST", path, accept=(200,), content=json.dumps(wanted).encode(), headers=_JSON
        )
        latest = self._client.object_of(path, answer).get("version")
        if not isinstance(latest, str):
            self._client.garbage(path, answer)
        return latest == snapshot.version

    def sweep(self) -> None:
        """Remove what publishers that died have staged on this host.

        What they uploaded no manifest names: it is the service's to remove.
        """
        self._staging.sweep()

    def _has(self, digest: FileDigest) -> bool:
        answer = self._client.ask("HEAD", _blob(digest), accept=(200, 404))
        size = answer.headers.get("Content-Length")
        return answer.status_code == 200 and size == str(digest.size)

    def _path(self, version: str) -> str:
        return f"{self._model}/versions/{version}"


def _blob(digest: FileDigest) -> str:
    return f"/blobs/sha256/{digest.sha256}"
