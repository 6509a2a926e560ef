"""Raw events out of the database, as logs that ``ingest``, ``rebuild`` and other tools read.

::

    <folder>/<deployment>/<dag>/<run>/<task>/g<generation>/launcher/exported.jsonl

One file holds all events of a job, its trainers' too, in the order of writers and numbers: the same
events give the same bytes. It is written aside and then gets its name, so it is whole or not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select, update

from airflow_ett.errors import ConfigurationError
from airflow_ett.events import JobKey, encode, slug
from airflow_ett.events.exclusive import draft
from airflow_ett.store import tables
from airflow_ett.store.engine import Store
from airflow_ett.store.project import load_events
from airflow_ett.store.pruned import lacks_events

_job, _event = tables.job.c, tables.event.c
_KEY = ("deployment", "dag_id", "run_id", "task_id", "map_index", "generation")


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: jobs, events, bytes; ``kept`` are jobs whose events were pruned before."""

    jobs: int = 0
    events: int = 0
    bytes: int = 0
    kept: int = 0


def export(
    store: Store,
    folder: Path,
    *,
    dag_ids: Collection[str] | None = None,
    not_below: Path | str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write the raw events of jobs below ``folder``; of some DAGs' with ``dag_ids``.

    Each job is then marked as exported with as many events as it had: later ones make that stale.
    ``folder`` may not be the run root (``not_below``), whose logs launchers read. ``progress`` is
    told how many of all jobs are done. Raises :class:`ConfigurationError`, :class:`StoreError`,
    and ``OSError`` where a file cannot be written.
    """
    inside = not isinstance(not_below, str) and _lies_below(folder, not_below)
    if inside:
        problem = f"{folder} is, or lies below, [ett] run_root; export to another folder"
        raise ConfigurationError("FOLDER", problem)
    jobs = _jobs(store, dag_ids)
    total = Exported()
    for done, (job, path) in enumerate(jobs):
        progress(done, len(jobs))
        total = _export(store, job, folder / path / "launcher" / "exported.jsonl", total)
    progress(len(jobs), len(jobs))
    return total


def _export(store: Store, job: str, path: Path, total: Exported) -> Exported:
    with store.read() as connection:
        if lacks_events(connection, job):
            return Exported(total.jobs, total.events, total.bytes, total.kept + 1)
        events = sorted(load_events(connection, job), key=lambda e: (e.writer, e.seq))
    if not events:
        return total
    content = b"".join(map(encode, events))
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path.parent, content) as finished:
        finished.replace(path)
    mark = {"exported_ns": time.time_ns(), "exported_events": len(events)}
    change = update(tables.job).where(_job.job == job).values(mark)
    store.write(lambda connection: connection.execute(change))
    return Exported(
        total.jobs + 1, total.events + len(events), total.bytes + len(content), total.kept
    )


def _jobs(store: Store, dag_ids: Collection[str] | None) -> Sequence[tuple[str, Path]]:
    """Return the jobs with where each one's export lies, those without numbers at the end."""
    measured = select(_job.job, *(_job[name] for name in _KEY)).order_by(_job.begin_ns, _job.job)
    if dag_ids is not None:
        measured = measured.where(_job.dag_id.in_(list(dag_ids)))
    others = select(_event.job).where(_event.job.not_in(select(_job.job))).distinct()
    with store.read() as connection:
        rows = connection.execute(measured).all()
        found = [(row.job, _path(row.job, JobKey(*row[1:]))) for row in rows]
        if dag_ids is None:
            found += [(job, _path(job, None)) for job in connection.scalars(others)]
    return found


def _path(job: str, key: JobKey | None) -> Path:
    """Return where a job's run directory is below a root; one without a true key has its id's."""
    if key is not None and key.id == job:
        return key.path
    return Path(slug("unknown"), slug("unknown"), slug("unknown"), slug(job), "g1")


def _lies_below(folder: Path, root: Path) -> bool:
    return folder.resolve().is_relative_to(root.resolve())
