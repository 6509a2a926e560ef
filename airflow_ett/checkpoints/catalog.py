"""Reading checkpoints: which are committed, which is the newest, is one whole.

Readers never delete anything. What they pass over they name, all of it in one warning.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_ett.checkpoints.layout import (
    LEASE,
    MANIFEST,
    MARKER,
    Folder,
    folder,
    listing,
    parse_name,
)
from airflow_ett.checkpoints.manifest import FileDigest, Manifest, digest_file
from airflow_ett.checkpoints.remote import RemotePath
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint: its folder, its manifest, and the manifest's sha256 (hexadecimal)."""

    path: Folder
    manifest: Manifest
    digest: str

    @property
    def uri(self) -> str:
        """The folder's absolute path or URI, as :func:`open_checkpoint` takes it."""
        return str(self.path)

    @property
    def cursor(self) -> int:
        """Global samples trained when it was saved."""
        return self.manifest.cursor

    @property
    def attempt(self) -> AttemptId:
        """The attempt that saved it."""
        return self.manifest.attempt

    @property
    def job(self) -> str:
        """Id of the job that saved it."""
        return self.manifest.job

    @property
    def files(self) -> Mapping[str, FileDigest]:
        """Its files by name, with their digests; manifest and marker are not among them."""
        return self.manifest.files


def list_checkpoints(root: str) -> list[Checkpoint]:
    """Return the committed checkpoints below ``root``, oldest first; none where there is no folder.

    Raises :class:`ConfigurationError` for a root that cannot be used, ``OSError`` for one that
    cannot be read.
    """
    return _scan(folder(root))[0]


def newest_committed(root: str) -> Checkpoint | None:
    """Return the committed checkpoint with the largest cursor; what is not committed is named.

    Raises as :func:`list_checkpoints` does.
    """
    found, skipped = _scan(folder(root))
    _warn(root, found[-1] if found else None, skipped)
    return found[-1] if found else None


def newest_verified(root: str) -> Checkpoint | None:
    """Return the newest committed checkpoint whose files have the digests of its manifest.

    Reads whole files, from the newest on, until one holds. Raises as :func:`list_checkpoints` does.
    """
    found, skipped = _scan(folder(root))
    good = None
    while found and good is None:
        candidate = found.pop()
        try:
            verify(candidate)
            good = candidate
        except CheckpointError as error:
            skipped.append(str(error))
    _warn(root, good, skipped)
    return good


def open_checkpoint(uri: str) -> Checkpoint:
    """Return the committed checkpoint in the folder ``uri`` (a path or a URI).

    Raises :class:`CheckpointError` that says what is missing; digests are left to :func:`verify`.
    Raises ``OSError`` where that cannot be told: what an outage hides is committed all the same.
    """
    path = folder(uri)
    if not path.is_dir():
        raise CheckpointError(f"checkpoint {path}: no such folder")
    try:
        content = (path / MANIFEST).read_bytes()
        marker = (path / MARKER).read_text().strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError) as error:
        missing = str(getattr(error, "filename", None) or MARKER).rpartition("/")[2]
        raise CheckpointError(f"checkpoint {path}: not committed, {missing} is missing") from error
    digest = hashlib.sha256(content).hexdigest()
    if marker != digest:
        raise CheckpointError(f"checkpoint {path}: {MARKER} does not match {MANIFEST}")
    try:
        return Checkpoint(path, Manifest.decode(content), digest)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from error


def verify(checkpoint: Checkpoint) -> None:
    """Compare every file with the manifest; raise :class:`CheckpointError` that names a bad one.

    Raises ``OSError`` where an object store does not answer.
    """
    for name, wanted in checkpoint.manifest.files.items():
        path = checkpoint.path / name
        try:
            if path.is_symlink():
                raise CheckpointError(f"checkpoint {checkpoint.path}: {name} is a link")
            found = digest_file(path)
        except OSError as error:
            if isinstance(path, RemotePath) and not isinstance(error, FileNotFoundError):
                raise  # a disk tells so of a bad block, an object store of an outage
            problem = f"checkpoint {checkpoint.path}: {name} cannot be read: {error.strerror}"
            raise CheckpointError(problem) from error
        if found.size != wanted.size:
            size = f"has {found.size} bytes instead of {wanted.size}"
            raise CheckpointError(f"checkpoint {checkpoint.path}: {name} {size}")
        if found.sha256 != wanted.sha256:
            raise CheckpointError(f"checkpoint {checkpoint.path}: {name} is damaged (its digest)")


def _scan(root: Folder) -> tuple[list[Checkpoint], list[str]]:
    """Return committed checkpoints, oldest first, and what is wrong with everything else."""
    found: list[Checkpoint] = []
    skipped: list[str] = []
    for path in listing(root) if root.is_dir() else []:
        if path.name == LEASE:
            continue
        if parse_name(path.name) is None or path.is_symlink():
            skipped.append(f"{path}: not a checkpoint")
            continue
        try:
            found.append(open_checkpoint(str(path)))
        except CheckpointError as error:
            skipped.append(str(error))
    found.sort(key=lambda checkpoint: (checkpoint.cursor, checkpoint.attempt))
    return found, skipped


def _warn(root: str, chosen: Checkpoint | None, skipped: Sequence[str]) -> None:
    if skipped:
        kept = chosen.path.name if chosen else "none"
        _log.warning(
            "Checkpoints in %s: %s is used; passed over: %s", root, kept, "; ".join(skipped)
        )
