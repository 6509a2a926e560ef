"""Writing checkpoints: commit a saved folder durably, then thin out the older ones.

The order is the promise: files, manifest, marker, each on disk before the next; only then is an
older checkpoint removed. So a loadable checkpoint exists at every instant.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from airflow_ett.checkpoints.catalog import Checkpoint, list_checkpoints
from airflow_ett.checkpoints.holder import launch
from airflow_ett.checkpoints.layout import MANIFEST, MARKER, parse_name
from airflow_ett.checkpoints.manifest import Manifest, digest_file
from airflow_ett.events import AttemptId


def commit(
    path: Path,
    *,
    job: str,
    attempt: AttemptId,
    epoch: int,
    cursor: int,
    check: Callable[[], None] | None = None,
) -> Checkpoint:
    """Make the files in folder ``path`` a committed checkpoint and return it.

    The caller has written and synced them. ``check`` is called when all is ready; what it raises
    prevents the commit. Raises ``OSError``; then nothing is committed.
    """
    files = sorted(p for p in path.iterdir() if p.name not in (MANIFEST, MARKER) and p.is_file())
    manifest = Manifest(
        job=job,
        attempt=attempt,
        epoch=epoch,
        cursor=cursor,
        created_ns=time.time_ns(),
        files={p.name: digest_file(p) for p in files},
    )
    content = manifest.encode()
    _write(path / MANIFEST, content)
    _sync_folder(path.parent)
    digest = hashlib.sha256(content).hexdigest()
    if check is not None:
        check()
    _write(path / MARKER, digest.encode() + b"\n")
    return Checkpoint(path, manifest, digest)


def retain(root: Path, *, keep: int, attempt: AttemptId) -> None:
    """Remove all but the ``keep`` checkpoints committed last, and what dead attempts left behind.

    ``attempt`` is the caller's: only uncommitted folders of earlier ones are dead, and nothing of
    a later launch is ever removed. Raises ``OSError``.
    """
    # Times order the saves of one launch alone: the next one's host may have another clock.
    committed = sorted(
        list_checkpoints(str(root)), key=lambda c: (launch(c.attempt), c.manifest.created_ns)
    )
    for old in committed[:-keep]:
        if launch(old.attempt) <= launch(attempt):
            discard(old.path)
    whole = {checkpoint.path for checkpoint in committed}
    for path in root.iterdir():
        name = parse_name(path.name)
        if name and name[1] < attempt and path not in whole and not path.is_symlink():
            discard(path)


def discard(path: Path) -> None:
    """Remove a checkpoint's folder, marker first, so that no reader takes a half for a whole."""
    (path / MARKER).unlink(missing_ok=True)
    shutil.rmtree(path)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically and durably."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
