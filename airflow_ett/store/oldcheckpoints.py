"""Removing superseded checkpoints of jobs that ended long ago.

A job keeps the checkpoint with the largest cursor, which the next generation inherits, and its
anchor, from which it is published. Looked for below configured roots alone: the run root, and
``[ett] checkpoint_root``; an address in an event is only compared. A task's own ``checkpoint_uri``
is its owner's to clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sqlalchemy import Connection, func, select

from airflow_ett.checkpoints import Checkpoint, discard, folder, list_checkpoints
from airflow_ett.checkpoints.layout import Folder, listing, parse_name
from airflow_ett.errors import CheckpointError, EventLogError
from airflow_ett.events import JobKey
from airflow_ett.store import tables
from airflow_ett.store.engine import Store
from airflow_ett.store.retention import Pruned

_DEPTH = 5
_WHAT = "checkpoints"
_job, _checkpoint = tables.job.c, tables.checkpoint.c


def prune_checkpoints(
    store: Store, root: str, before_ns: int, *, inside: str = "", dry_run: bool
) -> Pruned:
    """Remove the superseded checkpoints below ``root`` of jobs that are older than ``before_ns``.

    A job's lie in the folder ``inside`` its own. What was never committed goes, too. Raises
    :class:`StoreError`; what cannot be removed is told in ``kept``.
    """
    total = Pruned(_WHAT)
    closed: list[str] = []
    for own in _folders(folder(root), _DEPTH, closed):
        place = own / inside if inside else own
        try:
            if place.is_symlink() or not place.is_dir():
                continue
            if not any(parse_name(path.name) for path in listing(place)):
                continue
            total += _prune(store, root, own, place, before_ns, dry_run=dry_run)
        except FileNotFoundError:
            continue  # another pruning, or its owner, is at it
        except (OSError, CheckpointError, EventLogError) as error:
            closed.append(f"{place}: {error}")
    return total + Pruned(_WHAT, kept=tuple(closed))


def _prune(
    store: Store, root: str, own: Folder, place: Folder, before_ns: int, *, dry_run: bool
) -> Pruned:
    committed = list_checkpoints(str(place))
    jobs = {checkpoint.job for checkpoint in committed}
    if len(jobs) != 1:
        return Pruned(_WHAT)
    (job,) = jobs
    with store.read() as connection:
        if not _is_over(connection, job, root, own, before_ns):
            return Pruned(_WHAT)
        kept = {committed[-1].path.name, *_anchors(connection, job)}
    if not _is_whole(committed[-1]):
        note = f"{place}: files of {committed[-1].path.name}, the newest, are missing or cut short"
        return Pruned(_WHAT, kept=(note,))
    total = Pruned(_WHAT)
    for checkpoint in committed:
        if checkpoint.path.name not in kept:
            total += _gone(checkpoint)
            if not dry_run:
                _discard(checkpoint.path)
    whole = {checkpoint.path.name for checkpoint in committed}
    for path in listing(place):
        if parse_name(path.name) and path.name not in whole and not path.is_symlink():
            total += Pruned(_WHAT, 1)
            if not dry_run:
                _discard(path)
    return total


def _discard(path: Folder) -> None:
    with suppress(FileNotFoundError):  # another pruning is at it
        discard(path)


def _is_whole(checkpoint: Checkpoint) -> bool:
    """Say whether all files are there in full; what they hold is not read."""
    with suppress(OSError):
        files = checkpoint.files.items()
        return all((checkpoint.path / name).stat().st_size == file.size for name, file in files)
    return False


def _gone(checkpoint: Checkpoint) -> Pruned:
    manifest = checkpoint.manifest
    return Pruned(_WHAT, 1, manifest.size, manifest.created_ns)


def _is_over(connection: Connection, job: str, root: str, own: Folder, before_ns: int) -> bool:
    """Say whether the job has ended, its newest event is old enough, and the folder is its own."""
    row = connection.execute(select(tables.job).where(_job.job == job)).one_or_none()
    if row is None or not row.frozen or row.end_ns >= before_ns:
        return False
    newest = select(func.max(tables.event.c.time_ns)).where(tables.event.c.job == job)
    names = ("deployment", "dag_id", "run_id", "task_id", "map_index", "generation")
    key = JobKey(**{name: getattr(row, name) for name in names})
    place = folder(f"{root.rstrip('/')}/{key.path}")
    return key.id == job and str(own) == str(place) and (connection.scalar(newest) or 0) < before_ns


def _anchors(connection: Connection, job: str) -> set[str]:
    uris = connection.scalars(
        select(_checkpoint.uri).where(_checkpoint.job == job, _checkpoint.anchor)
    )
    return {uri.rstrip("/").rpartition("/")[2] for uri in uris}


def _folders(top: Folder, depth: int, closed: list[str]) -> Iterator[Folder]:
    """Yield the folders that lie ``depth`` below, never through a link.

    What cannot be looked into is told in ``closed``.
    """
    if depth == 0:
        yield top
        return
    try:
        inside = listing(top) if top.is_dir() else []
        children = [child for child in inside if child.is_dir() and not child.is_symlink()]
    except FileNotFoundError:
        return
    except OSError as error:
        closed.append(f"{top}: {error}")
        return
    for child in children:
        yield from _folders(child, depth - 1, closed)
