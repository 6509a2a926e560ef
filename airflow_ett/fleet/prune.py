"""Retention: what grows is removed by its configured age, and the numbers stay.

Only jobs that have ended and whose newest event is older than that are touched. It may run at any
moment, twice at once, and be killed: the next run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from sqlalchemy import func, select

from airflow_ett.config import Settings
from airflow_ett.errors import ConfigurationError
from airflow_ett.launch.schedulers.leftovers import (
    leftovers,
    remove,
    remove_untouched,
    sweep,
    untouched,
)
from airflow_ett.store import Store, tables
from airflow_ett.store.oldcheckpoints import prune_checkpoints
from airflow_ett.store.oldruns import prune_run_dirs
from airflow_ett.store.retention import Pruned, prune_events, prune_files, prune_quarantine


def prune(
    settings: Settings, store: Store, *, dry_run: bool = False, now_ns: int | None = None
) -> list[Pruned]:
    """Remove what is older than the options ``keep_…`` allow; return what, kind by kind.

    ``dry_run`` only looks. Checkpoints go before the run directories that hold some of them.
    Raises :class:`StoreError`.
    """
    now = time.time_ns() if now_ns is None else now_ns
    return list(_prune(settings, store, now, dry_run=dry_run))


def _prune(settings: Settings, store: Store, now: int, *, dry_run: bool) -> Iterator[Pruned]:
    root = settings.run_root if isinstance(settings.run_root, Path) else None
    checkpoints = _before(now, settings.keep_checkpoints)
    if checkpoints is not None:
        found = Pruned("checkpoints")
        if root is not None:
            found += prune_checkpoints(
                store, str(root), checkpoints, inside="checkpoints", dry_run=dry_run
            )
        if settings.checkpoint_root:
            try:
                found += prune_checkpoints(
                    store, settings.checkpoint_root, checkpoints, dry_run=dry_run
                )
            except ConfigurationError as error:
                found += Pruned(found.what, kept=(f"[ett] checkpoint_root: {error}",))
        yield found
    runs = _before(now, settings.keep_run_dirs)
    if runs is not None:
        if root is None:
            note = f"{settings.run_root}: an object store removes what is old by its own rules"
            yield Pruned("run directories", kept=(note,))
        else:
            yield prune_run_dirs(
                store, root, runs, checkpoints_before_ns=checkpoints, dry_run=dry_run
            )
        yield prune_files(store, runs, dry_run=dry_run)
    outputs = _before(now, settings.keep_outputs)
    if outputs is not None:
        yield _outputs(store, settings, outputs, dry_run=dry_run)
    events = _before(now, settings.keep_events)
    if events is not None:
        yield prune_quarantine(store, events, dry_run=dry_run)
        yield prune_events(store, events, dry_run=dry_run)


def _before(now_ns: int, age: timedelta | None) -> int | None:
    return None if age is None else now_ns - age // timedelta(microseconds=1) * 1000


def _outputs(store: Store, settings: Settings, before_ns: int, *, dry_run: bool) -> Pruned:
    total = Pruned("outputs")
    for state_dir, find, discard in (
        (settings.local_state_dir, leftovers, remove),
        (settings.slurm_state_dir, untouched, remove_untouched),
    ):
        try:
            if not dry_run:
                sweep(state_dir)
            for found in find(state_dir, before_ns):
                if _is_over(store, found.app, before_ns) and (dry_run or discard(found)):
                    total += Pruned("outputs", 1, found.bytes, found.ended_ns)
        except OSError as error:
            total += Pruned("outputs", kept=(f"{state_dir}: {error}",))
    return total


def _is_over(store: Store, app: str, before_ns: int) -> bool:
    """Say whether an app belongs to jobs that have ended, the newest event long enough ago."""
    job, submission, event = tables.job.c, tables.submission.c, tables.event.c
    newest = select(func.max(event.time_ns)).where(event.job == job.job).scalar_subquery()
    query = select(job.frozen, job.end_ns, func.coalesce(newest, 0).label("newest"))
    with store.read() as connection:
        rows = connection.execute(
            query.join_from(tables.job, tables.submission, job.job == submission.job).where(
                submission.app == app
            )
        ).all()
    return bool(rows) and all(
        row.frozen and max(row.end_ns, row.newest) < before_ns for row in rows
    )
