"""Writing checkpoints: commit a saved folder durably, then thin out the older ones.

The order is the promise: files, manifest, marker, each on disk before the next; only then is an
older checkpoint removed. So a loadable checkpoint exists at every instant.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from airflow_ett.checkpoints.catalog import Checkpoint, list_checkpoints
from airflow_ett.checkpoints.holder import launch
from airflow_ett.checkpoints.holds import is_held
from airflow_ett.checkpoints.layout import MANIFEST, MARKER, Folder, listing, parse_name
from airflow_ett.checkpoints.manifest import FileDigest, Manifest, digest_file
from airflow_ett.errors import CheckpointError
from airflow_ett.events import AttemptId
from airflow_ett.events.exclusive import freshen


def commit(
    path: Folder,
    *,
    job: str,
    attempt: AttemptId,
    epoch: int,
    cursor: int,
    written: Mapping[str, FileDigest] | None = None,
    check: Callable[[], None] | None = None,
) -> Checkpoint:
    """Make the files in folder ``path`` a committed checkpoint and return it.

    The caller has written and synced them; ``written`` are those that must be there, as their
    writers have digested them. ``check`` is called when all is ready; what it raises prevents the
    commit. Raises :class:`CheckpointError` for a file that is not as it was written, and
    ``OSError``; then nothing is committed.
    """
    if isinstance(path, Path):
        freshen(path)
    known = dict(written or {})
    for name, claimed in known.items():
        _require(path / name, claimed)
    for file in listing(path):
        if file.name not in (MANIFEST, MARKER) and file.name not in known and file.is_file():
            known[file.name] = digest_file(file)
    manifest = Manifest(
        job=job,
        attempt=attempt,
        epoch=epoch,
        cursor=cursor,
        created_ns=time.time_ns(),
        files=known,
    )
    content = manifest.encode()
    write(path / MANIFEST, content)
    if isinstance(path, Path):
        _sync_folder(path.parent)
    digest = hashlib.sha256(content).hexdigest()
    if check is not None:
        check()
    write(path / MARKER, digest.encode() + b"\n")
    return Checkpoint(path, manifest, digest)


def retain(root: Folder, *, keep: int, attempt: AttemptId) -> None:
    """Remove all but the ``keep`` checkpoints committed last, and what dead attempts left behind.

    One that somebody holds stays, unless only one is to be kept: then there is no room for it.
    ``attempt`` is the caller's: only uncommitted folders of earlier ones are dead, and nothing of
    a later launch is ever removed. Raises ``OSError``.
    """
    committed = sorted(list_checkpoints(str(root)), key=age)
    for old in committed[:-keep]:
        if launch(old.attempt) <= launch(attempt) and (keep == 1 or not is_held(old.path)):
            discard(old.path)
    whole = {checkpoint.path for checkpoint in committed}
    for path in listing(root):
        name = parse_name(path.name)
        if name and name[1] < attempt and path not in whole and not path.is_symlink():
            discard(path)


def age(checkpoint: Checkpoint) -> tuple[tuple[int, int], int]:
    """Return what orders checkpoints by the time of their commits, the last one's being greatest.

    Times order the saves of one launch alone: the next one's host may have another clock.
    """
    return launch(checkpoint.attempt), checkpoint.manifest.created_ns


def discard(path: Folder) -> None:
    """Remove a checkpoint's folder, marker first, so that no reader takes a half for a whole."""
    (path / MARKER).unlink(missing_ok=True)
    if isinstance(path, Path):
        shutil.rmtree(path)
    else:
        path.rmtree()


def write(path: Folder, content: bytes) -> None:
    """Write a file atomically and durably. Raises ``OSError``."""
    if not isinstance(path, Path):
        path.write_bytes(content)
        return
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync_folder(path.parent)


def _require(path: Folder, written: FileDigest) -> None:
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} was written by a rank, but cannot be seen on {os.uname().nodename}: all nodes "
            "must share this folder"
        ) from error
    if size != written.size:
        raise CheckpointError(f"{path} has {size} bytes, but its rank wrote {written.size}")


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
