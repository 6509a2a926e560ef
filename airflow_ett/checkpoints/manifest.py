"""The manifest: what a checkpoint holds and the digest of every file.

Torch's distributed checkpoint notices a missing or truncated file, but not a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_ett.checkpoints.layout import Folder
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId

_VERSION = 1
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size (bytes) and sha256 (hexadecimal) of one file."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was saved: by which job and attempt, at which cursor (global samples), in which files.

    ``epoch`` is the launcher's claim under which it was saved, ``created_ns`` UTC nanoseconds.
    """

    job: str
    attempt: AttemptId
    epoch: int
    cursor: int
    created_ns: int
    files: Mapping[str, FileDigest]

    @property
    def size(self) -> int:
        """Size of all files together, bytes."""
        return sum(digest.size for digest in self.files.values())

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        return json.dumps({"v": _VERSION, **asdict(self)}, indent=1, sort_keys=True).encode()

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Return the manifest in ``content``; raise :class:`CheckpointError` when it is none."""
        try:
            fields: dict[str, Any] = json.loads(content)
            files = {name: FileDigest(**d) for name, d in fields["files"].items()}
            attempt = AttemptId(*fields["attempt"])
            numbers = {name: int(fields[name]) for name in ("epoch", "cursor", "created_ns")}
            if any("/" in name or name in ("", ".", "..") for name in files):
                raise ValueError("a file's name is a path")
            return cls(job=str(fields["job"]), attempt=attempt, files=files, **numbers)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"manifest cannot be read: {error!r}") from error


def digest_file(path: Folder) -> FileDigest:
    """Return size and sha256 of a file's content; raises ``OSError``."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return FileDigest(size, digest.hexdigest())
